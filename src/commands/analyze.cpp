#include "commands/analyze.h"

#include <spdlog/fmt/fmt.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>

#include "commands/svg.h"
#include "linear/bias_study.h"
#include "linear/quant_error.h"
#include "linear/recipes.h"
#include "train/run_folder.h"
#include "train/session.h"

namespace q2 {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRows = 512, kInner = 1024;

struct AnalyzeOptions {
    std::string run, svg;
    uint64_t seed = 0;
    double tail = 0;
    int64_t draws = 256;
    bool json = false, force = false;
};

/// What is quantised: matrices, each (rows, inner) f32, whose errors are added.
struct Sample {
    std::string name;
    std::vector<Tensor> matrices;
};

/// N(0,1), another for each `number`.
Floats normals(uint64_t seed, int64_t number) {
    Floats values(size_t(kRows * kInner));
    draw_normals(seed, uint32_t(number), 1.0f, values);
    return values;
}

/// Student's t: a normal over the root of the mean of `degrees` squared ones.
Floats student(uint64_t seed, int degrees) {
    Floats t = normals(seed, 0);
    std::vector<double> squares(t.size());
    for (int k = 1; k <= degrees; ++k) {
        const Floats z = normals(seed, k);
        for (size_t i = 0; i < t.size(); ++i) squares[i] += double(z[i]) * z[i] / degrees;
    }
    for (size_t i = 0; i < t.size(); ++i) t[i] = float(t[i] / std::sqrt(squares[i]));
    return t;
}

Floats outlier_channels(uint64_t seed) {
    Floats x = normals(seed, 0);
    for (size_t i = 0; i < x.size(); i += 64) x[i] *= 20;
    return x;
}

std::vector<Sample> weights_by_kind(const Model& model) {
    std::vector<Sample> kinds;
    for (const std::string_view name : kLinearNames) kinds.push_back({std::string(name), {}});
    for (const Block& b : model.blocks)
        for (size_t i = 0; i < kinds.size(); ++i) kinds[i].matrices.push_back(b.linears()[i]->weight);
    return kinds;
}

/// The relative error over all matrices of the source; null where one does not fit the case.
Json error_of(Context& ctx, const Sample& source, const QuantCase& c, uint64_t seed) {
    SquaredError sum;
    for (const Tensor& x : source.matrices) {
        const bool tiles_fit = c.spec.grid != Grid::tile || x.rows % kBlock == 0;
        if (x.cols % inner_multiple(c.spec, c.rotation) != 0 || !tiles_fit) return nullptr;
        const SquaredError one = quant_error(ctx, x, c, seed);
        sum.error += one.error;
        sum.power += one.power;
    }
    return sum.relative();
}

std::string table_text(const Json& table) {
    std::string text = fmt::format("{:<24}", "relative squared error");
    for (const Json& column : table["columns"]) text += fmt::format("{:>14}", column.get<std::string>());
    for (const Json& row : table["rows"]) {
        text += fmt::format("\n{:<24}", row["quantiser"].get<std::string>());
        for (const auto& [name, error] : row["errors"].items())
            text +=
                error.is_null() ? fmt::format("{:>14}", "-") : fmt::format("{:>14.5f}", error.get<double>());
    }
    return text + fmt::format("\nseed {}\n", table["seed"].get<uint64_t>());
}

/// A curve a column over the rows' numbers.
std::string table_svg(const Json& table) {
    PlotPanel panel{"Relative squared error of a quantised operand",
                    "row of the table, from 1",
                    "log10 of the error",
                    {}};
    for (const Json& column : table["columns"]) {
        PlotSeries series{.label = column, .color = int(panel.series.size()), .markers = true};
        for (const Json& row : table["rows"]) {
            const Json& error = row["errors"][series.label];
            series.points.emplace_back(double(series.points.size() + 1),
                                       error.is_null() ? NAN : std::log10(error.get<double>()));
        }
        panel.series.push_back(std::move(series));
    }
    return svg_plot({panel});
}

int errors(const AnalyzeOptions& o) {
    const Json table = error_table(o.seed, o.run);
    if (!o.svg.empty()) write_svg(o.svg, table_svg(table), o.force);
    std::fputs(o.json ? (table.dump() + "\n").c_str() : table_text(table).c_str(), stdout);
    return int(Exit::ok);
}

/// N(0,1) exp(tail N(0,1)).
Floats heavy(uint64_t seed, int64_t number, double tail, size_t count) {
    Floats x = normals(seed, 2 * number);
    const Floats z = normals(seed, 2 * number + 1);
    x.resize(count);
    for (size_t i = 0; i < count; ++i) x[i] *= float(std::exp(tail * double(z[i])));
    return x;
}

std::string bias_text(const Json& table) {
    std::string text =
        "n times the squared error of the mean of n passes: level without bias, rising with one\n";
    for (const char* what : {"dx", "dw"})
        for (const Json& curve : table["curves"]) {
            text += fmt::format("{} {:<18}", what, curve["recipe"].get<std::string>());
            for (size_t i = 0; i < curve["n"].size(); ++i)
                text += fmt::format("{:>9.4f}", curve["n"][i].get<double>() * curve[what][i].get<double>());
            text += '\n';
        }
    return text + fmt::format("n = 1, 2, 4, ...; tail {}, seed {}\n", table["tail"].get<double>(),
                              table["seed"].get<uint64_t>());
}

std::string bias_svg(const Json& table) {
    std::vector<PlotPanel> panels;
    for (const char* what : {"dx", "dw"}) {
        PlotPanel panel{
            concat("Error of the mean of n passes, ", what), "log2 n", "log10 of the squared error", {}};
        for (const Json& curve : table["curves"]) {
            PlotSeries series{.label = curve["recipe"], .color = int(panel.series.size()), .markers = true};
            for (size_t i = 0; i < curve["n"].size(); ++i)
                series.points.emplace_back(double(i), std::log10(curve[what][i].get<double>()));
            panel.series.push_back(std::move(series));
        }
        panels.push_back(std::move(panel));
    }
    return svg_plot(panels);
}

int bias(const AnalyzeOptions& o) {
    const Json table = bias_table(o.seed, o.tail, o.draws);
    if (!o.svg.empty()) write_svg(o.svg, bias_svg(table), o.force);
    std::fputs(o.json ? (table.dump() + "\n").c_str() : bias_text(table).c_str(), stdout);
    return int(Exit::ok);
}

CLI::App* add_study(CLI::App& analyze, const char* name, const char* help, AnalyzeOptions& o) {
    CLI::App* command = analyze.add_subcommand(name, help);
    command->add_option("--seed", o.seed, "Of data and draws")->capture_default_str();
    command->add_flag("--json", o.json, "Print one JSON object in place of the table");
    command->add_option("--svg", o.svg, "Also plot the table into this file");
    command->add_flag("--force", o.force, "Let --svg replace a file that is not an SVG");
    return command;
}

}  // namespace

Json bias_table(uint64_t seed, double tail, int64_t draws) {
    constexpr int64_t kSize = 128;
    const Floats x = heavy(seed, 0, tail, kSize * kSize), w = heavy(seed, 1, tail, kSize * kSize),
                 e = heavy(seed, 2, tail, kSize * kSize);
    Json table = {{"seed", seed}, {"tail", tail}, {"curves", Json::array()}};
    for (const Recipe& recipe : builtin_recipes()) {
        if (recipe.fprop.keeps_both()) continue;
        const BiasCurves c = study_bias(recipe, {kSize, kSize, kSize}, x, w, e, draws, seed);
        table["curves"].push_back({{"recipe", recipe.name}, {"n", c.n}, {"dx", c.dx}, {"dw", c.dw}});
    }
    return table;
}

Json error_table(uint64_t seed, const std::string& run) {
    Floats data[] = {normals(seed, 0), student(seed, 5), outlier_channels(seed)};
    std::vector<Sample> sources;
    for (size_t i = 0; const char* name : {"normal", "student t5", "outliers"})
        sources.push_back({name, {{data[i++].data(), Dtype::f32, kRows, kInner}}});
    std::unique_ptr<Session> session;
    if (!run.empty()) {
        RunCheckpoint checkpoint = open_run(run);
        checkpoint.config.train.backend = "cpu";
        session = std::make_unique<Session>(checkpoint.config, 1);
        load_checkpoint(*session, checkpoint);
        for (Sample& kind : weights_by_kind(session->memory().model)) sources.push_back(std::move(kind));
    }
    Backend backend("cpu", 0);
    Json table = {{"seed", seed}, {"columns", Json::array()}, {"rows", Json::array()}};
    for (const Sample& source : sources) table["columns"].push_back(source.name);
    for (const QuantCase& c : quant_cases()) {
        Json row = {{"quantiser", c.name}, {"errors", Json::object()}};
        for (const Sample& source : sources)
            row["errors"][source.name] = error_of(backend.context(), source, c, seed);
        table["rows"].push_back(std::move(row));
    }
    return table;
}

void add_analyze(CLI::App& app, std::function<int()>& run) {
    CLI::App* analyze = app.add_subcommand("analyze", "Study the quantisers, on the CPU");
    analyze->require_subcommand(1);
    const auto options = std::make_shared<AnalyzeOptions>();
    CLI::App* command =
        add_study(*analyze, "errors",
                  "Squared error of every quantiser on N(0,1), heavy tails and a run's weights", *options);
    command->add_option("RUN", options->run, "A run's folder; its newest checkpoint's weights are added");
    command->callback([options, &run] { run = [options] { return errors(*options); }; });
    command = add_study(*analyze, "bias", "Error of the mean of n backward passes, by recipe: 1/n, or a bias",
                        *options);
    command->add_option("--draws", options->draws, "Passes")
        ->check(CLI::Range(1, 1 << 16))
        ->capture_default_str();
    command
        ->add_option("--tail", options->tail, "Data N(0,1) exp(tail N(0,1)): 0 normal, 1.5 full of outliers")
        ->check(CLI::Range(0.0, 3.0))
        ->capture_default_str();
    command->callback([options, &run] { run = [options] { return bias(*options); }; });
}

}  // namespace q2
