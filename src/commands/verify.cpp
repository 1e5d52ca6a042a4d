#include "commands/verify.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/check.h"
#include "base/safetensors.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/run_folder.h"
#include "train/token_file.h"

namespace q2 {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool exists(const std::string& path) {
    std::error_code unreachable;
    return fs::exists(path, unreachable);
}

/// The part that look() notes something of, or that its error is the problem of.
template <class Look>
Json part(const std::string& path, Look look) {
    try {
        const std::string note = look();
        return {{"path", path}, {"good", true}, {"note", note}};
    } catch (const Error& error) {
        return {{"path", path}, {"good", false}, {"problem", error.what()}};
    }
}

Json part_of(const CheckpointVerdict& c) {
    Json json = {{"path", c.folder}, {"step", c.step}, {"good", c.problem.empty()}};
    if (!c.problem.empty()) json[c.finished ? "problem" : "note"] = c.problem;
    // What a save left or is writing is no checkpoint; it is neither missed nor trusted.
    if (!c.finished) json["good"] = nullptr;
    return json;
}

Json run_parts(const std::string& run) {
    Json parts = Json::array();
    parts.push_back(part(run + "/config.json", [&] { return (void)config_of_run(run), std::string(); }));
    if (exists(metrics_path(run)))
        parts.push_back(part(metrics_path(run),
                             [&] { return concat(read_metrics(metrics_path(run)).size(), " records"); }));
    bool one_is_good = false;
    for (const CheckpointVerdict& c : verify_checkpoints(run)) {
        parts.push_back(part_of(c));
        one_is_good |= c.problem.empty();
    }
    if (!one_is_good)
        parts.push_back({{"path", run + "/checkpoints"}, {"good", false}, {"problem", "no good checkpoint"}});
    return parts;
}

std::string checkpoint_note(const std::string& folder) {
    const CheckpointMeta meta = verify_checkpoint(folder);
    return concat("after step ", meta.step, ", seed ", meta.seed, ", ", meta.data_position, " samples read");
}

std::string safetensors_note(const std::string& path) {
    const SafetensorsFile file(path);
    size_t bytes = 0;
    for (const auto& [name, entry] : file.tensors()) bytes += entry.bytes;
    return concat(file.tensors().size(), " tensors of ", bytes, " bytes");
}

std::string tokens_note(const std::string& path, const VerifyOptions& o) {
    const TokenFile file(path, parse_token_format(o.format), std::max<int64_t>(o.vocab, 1));
    if (o.vocab == 0) return concat(file.tokens(), " tokens, not looked at without --vocab");
    const int64_t beyond = file.find_beyond_vocab(0, file.tokens());
    if (beyond >= 0) file.fail_beyond_vocab(beyond);
    return concat(file.tokens(), " tokens, all below ", o.vocab);
}

/// One thing with one verdict.
template <class Note>
Json single(const std::string& path, const char* kind, Note note) {
    Json parts = Json::array();
    parts.push_back(part(path, note));
    return {{"path", path}, {"kind", kind}, {"parts", parts}};
}

Json look_at(const std::string& path, const VerifyOptions& o) {
    check(exists(path), Exit::data, path, ": no such file or folder");
    std::error_code unreachable;
    if (!fs::is_directory(path, unreachable)) {
        if (path.ends_with(".safetensors"))
            return single(path, "safetensors", [&] { return safetensors_note(path); });
        return single(path, "tokens", [&] { return tokens_note(path, o); });
    }
    if (exists(path + "/manifest.json"))
        return single(path, "checkpoint", [&] { return checkpoint_note(path); });
    check(exists(path + "/config.json") || exists(path + "/checkpoints"), Exit::data, path,
          ": neither a run (no config.json) nor a checkpoint (no manifest.json)");
    return {{"path", path}, {"kind", "run"}, {"parts", run_parts(path)}};
}

std::string line_of(const Json& p) {
    const char* const verdict = p["good"].is_null() ? "-   " : p["good"] == true ? "good" : "BAD ";
    const std::string path = p["path"], said = p.value("problem", p.value("note", ""));
    // Most problems begin with a path of their own.
    return concat(verdict, "  ",
                  said.starts_with(path) ? said
                  : said.empty()         ? path
                                         : path + ": " + said,
                  "\n");
}

int verify(const std::string& path, const VerifyOptions& o, bool json) {
    const Json report = verify_path(path, o);
    std::string text = json ? report.dump() + "\n" : "";
    if (!json)
        for (const Json& p : report["parts"]) text += line_of(p);
    std::fputs(text.c_str(), stdout);
    return int(report["good"] == true ? Exit::ok : Exit::data);
}

}  // namespace

Json verify_path(const std::string& path, const VerifyOptions& options) {
    Json report = look_at(path, options);
    bool good = true;
    for (const Json& p : report["parts"]) good &= p["good"] != false;
    report["good"] = good;
    return report;
}

void add_verify(CLI::App& app, std::function<int()>& run) {
    struct Chosen {
        std::string path;
        VerifyOptions options;
        bool json = false;
    };
    const auto chosen = std::make_shared<Chosen>();
    CLI::App* command = app.add_subcommand(
        "verify", "Whether a run's checkpoints, a checkpoint, a token file or a safetensors file is whole");
    command->add_option("PATH", chosen->path, "A run's folder, a checkpoint's folder, or a file")->required();
    command->add_option("--vocab", chosen->options.vocab, "Token files: every token must be below this")
        ->check(CLI::Range(int64_t(1), int64_t(2147483647)));
    command->add_option("--format", chosen->options.format, "Token files without a header: uint16 or uint32")
        ->check(CLI::IsMember({"auto", "uint16", "uint32"}));
    command->add_flag("--json", chosen->json, "Print one JSON object");
    command->callback(
        [chosen, &run] { run = [chosen] { return verify(chosen->path, chosen->options, chosen->json); }; });
}

}  // namespace q2
