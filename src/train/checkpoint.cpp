#include "train/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/files.h"

namespace q2 {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kFormatVersion = 1;
constexpr size_t kMaxManifest = size_t(64) << 20;
const std::string kManifest = "manifest.json", kUnfinished = ".tmp", kPrefix = "step-";

std::string checkpoints_of(const std::string& run) { return run + "/checkpoints"; }

std::string folder_name(int64_t step) {
    std::string digits = std::to_string(step);
    if (digits.size() < 8) digits.insert(0, 8 - digits.size(), '0');
    return kPrefix + digits;
}

/// The step of "step-00001000", or -1 for another name.
int64_t step_of(const std::string& name) {
    if (!name.starts_with(kPrefix)) return -1;
    int64_t step = -1;
    const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
    return error == std::errc() && folder_name(step) == name ? step : -1;
}

struct Found {
    int64_t step;
    bool finished;
    std::string path;
};

/// All checkpoints and the leftovers of interrupted saves, newest first.
std::vector<Found> list(const std::string& run) {
    std::vector<Found> found;
    std::error_code error;
    for (fs::directory_iterator it(checkpoints_of(run), error), end; !error && it != end;
         it.increment(error)) {
        std::string name = it->path().filename().string();
        const bool finished = !name.ends_with(kUnfinished);
        if (!finished) name.resize(name.size() - kUnfinished.size());
        if (step_of(name) >= 0) found.push_back({step_of(name), finished, it->path().string()});
    }
    check(!error || error == std::errc::no_such_file_or_directory, Exit::data, checkpoints_of(run),
          ": cannot be listed: ", error.message());
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
        return std::pair(a.step, a.finished) > std::pair(b.step, b.finished);
    });
    return found;
}

void remove_folder(const std::string& folder) {
    std::error_code error;
    fs::remove_all(folder, error);
    check(!error, Exit::data, folder, ": cannot be removed: ", error.message());
}

void rename_folder(const std::string& from, const std::string& to) {
    std::error_code error;
    fs::rename(from, to, error);
    check(!error, Exit::data, from, ": cannot be renamed to ", to, ": ", error.message());
}

/// Puts the folder `beside` in place of `folder`, swapping in one step where the file system can, so that no
/// crash leaves neither.
void publish(const std::string& beside, const std::string& folder) {
    if (!fs::exists(folder)) return rename_folder(beside, folder);
    if (::renameat2(AT_FDCWD, beside.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
        remove_folder(folder);
        return rename_folder(beside, folder);
    }
    remove_folder(beside);
}

std::string checksum_text(uint64_t checksum) {
    std::string text(16, '0');
    for (int i = 0; i < 16; ++i) text[size_t(i)] = "0123456789abcdef"[checksum >> (60 - 4 * i) & 15];
    return text;
}

Json summary_json(const FileSummary& summary) {
    return {{"size", summary.size}, {"xxh64", checksum_text(summary.checksum)}};
}

/// The manifest's own checksum: over its JSON text without that field, keys sorted.
std::string own_checksum(const Json& manifest) {
    const std::string text = manifest.dump();
    Checksum checksum;
    checksum.update(text.data(), text.size());
    return checksum_text(checksum.value());
}

std::string manifest_text(const CheckpointMeta& meta, const Json& files) {
    Json manifest = {{"format", kFormatVersion},
                     {"step", meta.step},
                     {"seed", meta.seed},
                     {"world_size", meta.world_size},
                     {"data_position", meta.data_position},
                     {"config", meta.config},
                     {"extra", meta.extra},
                     {"files", files}};
    manifest["xxh64"] = own_checksum(manifest);
    return manifest.dump(1) + "\n";
}

Json read_manifest(const std::string& path) {
    const MappedFile file(path);
    check(file.size() <= kMaxManifest, Exit::data, path, ": ", file.size(), " bytes are too many");
    Json manifest;
    try {
        manifest = Json::parse(file.text());
        const std::string claimed = manifest.at("xxh64");
        manifest.erase("xxh64");
        check(own_checksum(manifest) == claimed, Exit::data, path, ": its own checksum is wrong");
        check(manifest.at("format").get<int>() == kFormatVersion, Exit::data, path, ": format version ",
              manifest["format"].dump(), " is not supported (", kFormatVersion, " is)");
    } catch (const Json::exception& error) {
        fail(Exit::data, path, ": not a manifest: ", error.what());
    }
    return manifest;
}

CheckpointMeta meta_of(const Json& manifest) {
    return {manifest.at("step"),          manifest.at("seed"),   manifest.at("world_size"),
            manifest.at("data_position"), manifest.at("config"), manifest.at("extra")};
}

enum class Depth { sizes, checksums };

void verify_file(const std::string& folder, const std::string& name, const Json& expected, Depth depth) {
    check(!name.empty() && name.find('/') == std::string::npos && name != "..", Exit::data, folder, "/",
          kManifest, ": \"", name, "\" is not a file's name");
    const std::string path = folder + "/" + name;
    const MappedFile file(path);
    check(file.size() == expected.at("size").get<uint64_t>(), Exit::data, path, ": ", file.size(),
          " bytes, the manifest says ", expected.at("size").dump());
    if (depth == Depth::sizes) return;
    check(checksum_text(summarize_file(path).checksum) == expected.at("xxh64").get<std::string>(), Exit::data,
          path, ": its checksum differs from the manifest's");
}

CheckpointMeta verify(const std::string& folder, Depth depth) {
    const Json manifest = read_manifest(folder + "/" + kManifest);
    try {
        for (const auto& [name, expected] : manifest.at("files").items())
            verify_file(folder, name, expected, depth);
        return meta_of(manifest);
    } catch (const Json::exception& error) {
        fail(Exit::data, folder, "/", kManifest, ": ", error.what());
    }
}

/// What is wrong with a checkpoint, or nothing.
std::optional<std::string> problem_of(const std::string& folder, Depth depth) {
    try {
        verify(folder, depth);
        return std::nullopt;
    } catch (const Error& error) {
        return error.what();
    }
}

/// Removes the folder at the end of the scope, unless it was published.
struct Unfinished {
    explicit Unfinished(std::string path) : path(std::move(path)) {}
    ~Unfinished() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
    const std::string path;
};

}  // namespace

std::string save_checkpoint(const std::string& run, const CheckpointMeta& meta,
                            std::span<const CheckpointFile> files) {
    const std::string folder = checkpoints_of(run) + "/" + folder_name(meta.step);
    make_folder(checkpoints_of(run));
    for (const Found& left : list(run))
        if (!left.finished) remove_folder(left.path);
    const Unfinished beside(folder + kUnfinished);
    make_folder(beside.path);
    Json summaries = Json::object();
    for (const CheckpointFile& file : files)
        summaries[file.name] = summary_json(save_tensors(beside.path + "/" + file.name, file.tensors));
    write_file_atomic(beside.path + "/" + kManifest, manifest_text(meta, summaries));
    publish(beside.path, folder);
    sync_folder(checkpoints_of(run));
    return folder;
}

CheckpointMeta verify_checkpoint(const std::string& folder) { return verify(folder, Depth::checksums); }

CheckpointSearch find_latest_checkpoint(const std::string& run) {
    CheckpointSearch search;
    for (const Found& found : list(run)) {
        try {
            check(found.finished, Exit::data, found.path, ": its save was interrupted");
            search.meta = verify_checkpoint(found.path);
            check(search.meta.step == found.step, Exit::data, found.path, ": its manifest is of step ",
                  search.meta.step);
            search.folder = found.path;
            break;
        } catch (const Error& error) {
            search.skipped.push_back({found.path, error.what(), found.finished});
        }
    }
    return search;
}

std::vector<std::string> prune_checkpoints(const std::string& run, int64_t keep) {
    std::vector<std::string> removed;
    if (keep <= 0) return removed;
    bool one_is_sure = false;
    int64_t kept = 0;
    for (const Found& found : list(run)) {
        if (!found.finished) continue;
        if (kept < keep || !one_is_sure) {
            // Checksums are read until one checkpoint is sure; sizes are enough to count the others.
            if (problem_of(found.path, one_is_sure ? Depth::sizes : Depth::checksums)) continue;
            one_is_sure = true;
            ++kept;
            continue;
        }
        // Out of sight first: an interrupted removal must not look like a checkpoint.
        rename_folder(found.path, found.path + kUnfinished);
        remove_folder(found.path + kUnfinished);
        removed.push_back(found.path);
    }
    return removed;
}

}  // namespace q2
