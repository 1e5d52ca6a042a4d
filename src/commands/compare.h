// quartet2 compare RUN RUN...: how far the losses of runs lie from the first one's, at equal steps.
//
// Runs that see the same batches share most of a step's noise, so a difference paired step by step resolves
// gaps far below the scatter of either curve.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace q2 {

/// The curves of a run that are compared, by step.
struct RunCurves {
    std::string name;
    std::map<int64_t, double> loss, val_loss;  ///< nats a token
    std::optional<double> tokens_per_s;        ///< median over the run's lines

    std::optional<int64_t> last_step() const;
};

/// A line of a later part of the file wins over an earlier one of the same step. Skipped steps count no loss:
/// a batch that was not trained on says nothing about the recipe. Records are those of train/metrics.h;
/// throws Exit::data for a loss that is neither a number nor null.
RunCurves curves_of(const std::string& name, const std::vector<nlohmann::json>& records);

/// Both values at a step where both runs have one.
struct PairedLoss {
    int64_t step;
    double baseline, run;

    double gap() const { return run - baseline; }
};

std::vector<PairedLoss> pair_steps(const std::map<int64_t, double>& baseline,
                                   const std::map<int64_t, double>& run);

struct Comparison {
    std::vector<PairedLoss> loss, val_loss;
    std::optional<double> loss_gap;  ///< mean over all paired steps

    /// Means over the paired steps of the last tenth of the training that both runs did: from step
    /// `tail_first` on, counting the last paired step as the end.
    int64_t tail_first = 0;
    std::optional<double> tail_loss, tail_loss_gap;

    /// The last evaluation at a step where both runs have one.
    std::optional<int64_t> val_step;
    std::optional<double> last_val_loss, val_loss_gap;
};

/// Throws Exit::data if the runs have no step in common, neither in training nor in validation.
Comparison compare_runs(const RunCurves& baseline, const RunCurves& run);

/// Text of the report: a table, or one JSON object. runs[0] is the baseline.
std::string comparison_table(const std::vector<RunCurves>& runs);
std::string comparison_json(const std::vector<RunCurves>& runs);
/// Loss curves above, gaps below.
std::string comparison_svg(const std::vector<RunCurves>& runs);

struct CompareOptions {
    std::vector<std::string> runs;  ///< run folders, the baseline first
    bool json = false;
    std::string svg;     ///< file to write; empty: none
    bool force = false;  ///< replaces a file that is not an SVG too
};

int compare(const CompareOptions& options);

/// Adds the subcommand; its callback sets `run`.
void add_compare(CLI::App& app, std::function<int()>& run);

}  // namespace q2
