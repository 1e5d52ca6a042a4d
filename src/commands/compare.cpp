#include "commands/compare.h"

#include <spdlog/fmt/fmt.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "base/check.h"
#include "commands/svg.h"
#include "train/metrics.h"

namespace q2 {
namespace {

std::optional<double> median(std::vector<double> values) {
    if (values.empty()) return {};
    const auto middle = values.begin() + int64_t(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// A record's value, if it has one: what was not finite is null.
std::optional<double> number(const std::string& run, const nlohmann::json& record, const char* key) {
    const auto found = record.find(key);
    if (found == record.end() || found->is_null()) return {};
    check(found->is_number(), Exit::data, run, ": step ", record.at("step").dump(), " of its metrics has ",
          key, " = ", found->dump(), ", not a number");
    return found->get<double>();
}

/// Mean of value(pair) over the pairs from step `first` on.
template <class F>
std::optional<double> mean_from(const std::vector<PairedLoss>& pairs, int64_t first, F value) {
    double sum = 0;
    int64_t count = 0;
    for (const PairedLoss& pair : pairs) {
        if (pair.step < first) continue;
        sum += value(pair);
        ++count;
    }
    if (count == 0) return {};
    return sum / double(count);
}

std::string span_of(const RunCurves& run) {
    const std::map<int64_t, double>& steps = run.loss.empty() ? run.val_loss : run.loss;
    if (steps.empty()) return concat(run.name, " has no losses");
    return concat(run.name, " has ", steps.size(), " losses at steps ", steps.begin()->first, " to ",
                  steps.rbegin()->first);
}

std::string cell(const std::optional<double>& value, int decimals) {
    return value ? fmt::format("{:.{}f}", *value, decimals) : "-";
}

std::string gap_cell(const std::optional<double>& value) {
    return value ? fmt::format("{:+.5f}", *value) : "-";
}

// ---- Report

/// The figures of one run of the report, under the names that --json prints.
struct Row {
    const RunCurves* run;
    Comparison against;  // with itself for the baseline
};

std::vector<Row> rows_of(const std::vector<RunCurves>& runs) {
    std::vector<Row> rows;
    for (const RunCurves& run : runs) rows.push_back({&run, compare_runs(runs.front(), run)});
    return rows;
}

template <class T>
nlohmann::ordered_json json_of(const std::optional<T>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

nlohmann::ordered_json json_of(const std::vector<PairedLoss>& pairs) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const PairedLoss& p : pairs) out.push_back({{"step", p.step}, {"gap", p.gap()}});
    return out;
}

nlohmann::ordered_json json_of(const Row& row) {
    nlohmann::ordered_json out;
    out["run"] = row.run->name;
    out["last_step"] = json_of(row.run->last_step());
    out["paired_steps"] = row.against.loss.size();
    out["loss_gap"] = json_of(row.against.loss_gap);
    out["tail_first_step"] = row.against.tail_first;
    out["tail_loss"] = json_of(row.against.tail_loss);
    out["tail_loss_gap"] = json_of(row.against.tail_loss_gap);
    out["val_step"] = json_of(row.against.val_step);
    out["val_loss"] = json_of(row.against.last_val_loss);
    out["val_loss_gap"] = json_of(row.against.val_loss_gap);
    out["tokens_per_s"] = json_of(row.run->tokens_per_s);
    out["loss_gaps"] = json_of(row.against.loss);
    out["val_loss_gaps"] = json_of(row.against.val_loss);
    return out;
}

// ---- Plot

std::vector<std::pair<double, double>> points_of(const std::map<int64_t, double>& curve) {
    return {curve.begin(), curve.end()};
}

std::vector<std::pair<double, double>> gaps_of(const std::vector<PairedLoss>& pairs) {
    std::vector<std::pair<double, double>> out;
    for (const PairedLoss& p : pairs) out.emplace_back(double(p.step), p.gap());
    return out;
}

/// Each point replaced by the mean of those up to `reach` before and after it.
std::vector<std::pair<double, double>> smoothed(const std::vector<std::pair<double, double>>& in,
                                                int64_t reach) {
    std::vector<double> sums = {0};
    for (const auto& point : in) sums.push_back(sums.back() + point.second);
    std::vector<std::pair<double, double>> out;
    const int64_t size = int64_t(in.size());
    for (int64_t i = 0; i < size; ++i) {
        const int64_t room = std::min({reach, i, size - 1 - i});
        out.emplace_back(in[i].first, (sums[i + room + 1] - sums[i - room]) / double(2 * room + 1));
    }
    return out;
}

PlotPanel loss_panel(const std::vector<RunCurves>& runs) {
    PlotPanel panel = {"Loss", "step", "nats a token", {}};
    for (size_t i = 0; i < runs.size(); ++i) {
        panel.series.push_back({runs[i].name, points_of(runs[i].loss), int(i), false, false});
        if (!runs[i].val_loss.empty())
            panel.series.push_back(
                {runs[i].name + ", validation", points_of(runs[i].val_loss), int(i), false, true});
    }
    return panel;
}

PlotPanel gap_panel(const std::vector<Row>& rows) {
    PlotPanel panel = {"Gap to " + rows.front().run->name, "step", "nats a token", {}};
    for (size_t i = 1; i < rows.size(); ++i) {
        const auto gaps = gaps_of(rows[i].against.loss);
        const int64_t reach = int64_t(gaps.size() / 50);
        panel.series.push_back({"", gaps, int(i), true, false});
        panel.series.push_back({concat(rows[i].run->name, ", mean of ", 2 * reach + 1), smoothed(gaps, reach),
                                int(i), false, false});
        if (!rows[i].against.val_loss.empty())
            panel.series.push_back(
                {rows[i].run->name + ", validation", gaps_of(rows[i].against.val_loss), int(i), false, true});
    }
    return panel;
}

std::filesystem::path metrics_of(const std::string& run) {
    return std::filesystem::path(run) / "metrics.jsonl";
}

RunCurves read_run(const std::string& folder) {
    const std::filesystem::path path = metrics_of(folder);
    check(std::filesystem::is_directory(folder), Exit::data, folder, ": no such run folder");
    check(std::filesystem::is_regular_file(path), Exit::data, path.string(),
          ": no such file; is this a run folder, made by quartet2 train?");
    return curves_of(folder, read_metrics(path.string()));
}

}  // namespace

std::optional<int64_t> RunCurves::last_step() const {
    std::optional<int64_t> last;
    if (!loss.empty()) last = loss.rbegin()->first;
    if (!val_loss.empty()) last = std::max(last.value_or(0), val_loss.rbegin()->first);
    return last;
}

RunCurves curves_of(const std::string& name, const std::vector<nlohmann::json>& records) {
    RunCurves run;
    run.name = name;
    std::vector<double> speeds;
    for (const nlohmann::json& record : records) {
        const int64_t step = record.at("step").get<int64_t>();
        const auto loss = number(name, record, "loss");
        if (loss && !record.contains("skipped")) run.loss[step] = *loss;
        if (const auto loss = number(name, record, "val_loss")) run.val_loss[step] = *loss;
        if (const auto speed = number(name, record, "tokens_per_s")) speeds.push_back(*speed);
    }
    run.tokens_per_s = median(std::move(speeds));
    return run;
}

std::vector<PairedLoss> pair_steps(const std::map<int64_t, double>& baseline,
                                   const std::map<int64_t, double>& run) {
    std::vector<PairedLoss> pairs;
    for (const auto& [step, value] : run) {
        const auto other = baseline.find(step);
        if (other != baseline.end()) pairs.push_back({step, other->second, value});
    }
    return pairs;
}

Comparison compare_runs(const RunCurves& baseline, const RunCurves& run) {
    Comparison c;
    c.loss = pair_steps(baseline.loss, run.loss);
    c.val_loss = pair_steps(baseline.val_loss, run.val_loss);
    check(!c.loss.empty() || !c.val_loss.empty(), Exit::data,
          "compare: no step in common: ", span_of(baseline), "; ", span_of(run),
          "; log both at equal steps (log.every)");
    if (!c.val_loss.empty()) {
        const PairedLoss& end = c.val_loss.back();
        c.val_step = end.step;
        c.last_val_loss = end.run;
        c.val_loss_gap = end.gap();
    }
    if (c.loss.empty()) return c;
    const int64_t last = c.loss.back().step;
    c.tail_first = std::min(last, last + 1 - (last + 1) / 10);
    const auto gap = [](const PairedLoss& p) { return p.gap(); };
    c.loss_gap = mean_from(c.loss, c.loss.front().step, gap);
    c.tail_loss_gap = mean_from(c.loss, c.tail_first, gap);
    c.tail_loss = mean_from(c.loss, c.tail_first, [](const PairedLoss& p) { return p.run; });
    return c;
}

std::string comparison_table(const std::vector<RunCurves>& runs) {
    size_t width = 3;
    for (const RunCurves& run : runs) width = std::max(width, run.name.size());
    std::string out;
    const auto line = [&](const std::string& name, const auto&... cells) {
        out += fmt::format("{:<{}}  {:>8}  {:>6}  {:>9}  {:>9}  {:>9}  {:>8}  {:>8}  {:>9}  {:>9}\n", name,
                           width, cells...);
    };
    line("run", "steps to", "paired", "gap", "tail loss", "tail gap", "val step", "val loss", "val gap",
         "tokens/s");
    for (const Row& row : rows_of(runs)) {
        const Comparison& c = row.against;
        line(row.run->name, cell(row.run->last_step(), 0), c.loss.size(), gap_cell(c.loss_gap),
             cell(c.tail_loss, 5), gap_cell(c.tail_loss_gap), cell(c.val_step, 0), cell(c.last_val_loss, 5),
             gap_cell(c.val_loss_gap), cell(row.run->tokens_per_s, 0));
    }
    return out + "gap: a run's loss minus that of " + runs.front().name +
           " at equal steps, mean over the paired steps;\n"
           "tail: those of the last tenth; val: the last evaluation that both have. Nats a token.\n";
}

std::string comparison_json(const std::vector<RunCurves>& runs) {
    nlohmann::ordered_json out;
    out["baseline"] = runs.front().name;
    out["runs"] = nlohmann::ordered_json::array();
    for (const Row& row : rows_of(runs)) out["runs"].push_back(json_of(row));
    return out.dump() + "\n";
}

std::string comparison_svg(const std::vector<RunCurves>& runs) {
    return svg_plot({loss_panel(runs), gap_panel(rows_of(runs))});
}

int compare(const CompareOptions& options) {
    check(options.runs.size() >= 2, Exit::usage, "compare: at least two runs are needed, not ",
          options.runs.size());
    std::vector<RunCurves> runs;
    for (const std::string& folder : options.runs) {
        std::error_code missing;
        check(!std::filesystem::equivalent(options.svg, metrics_of(folder), missing), Exit::usage, "--svg ",
              options.svg, ": is the metrics of a run that is compared; choose another name");
        runs.push_back(read_run(folder));
    }
    std::cout << (options.json ? comparison_json(runs) : comparison_table(runs));
    if (!options.svg.empty()) write_svg(options.svg, comparison_svg(runs), options.force);
    return int(Exit::ok);
}

void add_compare(CLI::App& app, std::function<int()>& run) {
    CLI::App* command = app.add_subcommand(
        "compare", "Loss gaps of runs to the first one: at equal steps, over the last tenth, in validation");
    const auto options = std::make_shared<CompareOptions>();
    command->add_option("RUN", options->runs, "Run folders, the baseline first")->required()->expected(-2);
    command->add_flag("--json", options->json, "Print one JSON object in place of the table");
    command->add_option("--svg", options->svg, "Also plot losses and gaps into this file");
    command->add_flag("--force", options->force, "Let --svg replace a file that is not an SVG");
    command->callback([options, &run] { run = [options] { return compare(*options); }; });
}

}  // namespace q2
