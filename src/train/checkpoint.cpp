#include "train/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "train/manifest.h"

namespace q2 {
namespace {

namespace fs = std::filesystem;

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

enum class Depth { sizes, checksums };

void verify_file(const std::string& path, const FileSummary& expected, Depth depth) {
    const uint64_t size = size_of_file(path);
    check(size == expected.size, Exit::data, path, ": ", size, " bytes, the manifest says ", expected.size);
    if (depth == Depth::sizes) return;
    check(summarize_file(path).checksum == expected.checksum, Exit::data, path,
          ": its checksum differs from the manifest's");
}

CheckpointMeta verify(const std::string& folder, Depth depth) {
    const std::string path = folder + "/" + kManifest;
    const Manifest manifest = parse_manifest(read_file(path, kMaxManifestBytes), path);
    for (const auto& [name, expected] : manifest.files) verify_file(folder + "/" + name, expected, depth);
    return manifest.meta;
}

/// Verifies one of list(); throws what is wrong with it.
CheckpointMeta verify(const Found& found, Depth depth) {
    check(found.finished, Exit::data, found.path, ": its save was interrupted, or is under way");
    CheckpointMeta meta = verify(found.path, depth);
    check(meta.step == found.step, Exit::data, found.path, ": its manifest is of step ", meta.step);
    return meta;
}

bool is_gone(const Found& found) {
    std::error_code error;
    return fs::symlink_status(found.path, error).type() == fs::file_type::not_found;
}

/// What is wrong with a checkpoint, or nothing.
std::optional<std::string> problem_of(const Found& found, Depth depth) {
    try {
        verify(found, depth);
        return std::nullopt;
    } catch (const Error& error) {
        return error.what();
    }
}

/// One look through the run's checkpoints; nothing if a training removed one meanwhile, which means that
/// there are newer ones.
std::optional<CheckpointSearch> search_once(const std::string& run) {
    CheckpointSearch search;
    for (const Found& found : list(run)) {
        try {
            search.meta = verify(found, Depth::checksums);
            search.folder = found.path;
            return search;
        } catch (const Error& error) {
            if (is_gone(found)) return std::nullopt;
            search.skipped.push_back({found.path, error.what(), found.finished});
        }
    }
    return search;
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
    Manifest manifest{meta, {}};
    for (const CheckpointFile& file : files)
        manifest.files[file.name] = save_tensors(beside.path + "/" + file.name, file.tensors);
    write_file_atomic(beside.path + "/" + kManifest, manifest_text(manifest));
    publish(beside.path, folder);
    sync_folder(checkpoints_of(run));
    return folder;
}

CheckpointMeta verify_checkpoint(const std::string& folder) { return verify(folder, Depth::checksums); }

CheckpointSearch find_latest_checkpoint(const std::string& run) {
    for (int attempts = 0; attempts < 100; ++attempts)
        if (std::optional<CheckpointSearch> search = search_once(run)) return std::move(*search);
    fail(Exit::data, checkpoints_of(run),
         ": checkpoints vanish as they are read; let the training end first");
}

std::vector<CheckpointVerdict> verify_checkpoints(const std::string& run) {
    std::vector<CheckpointVerdict> verdicts;
    for (const Found& found : list(run)) {
        const std::optional<std::string> problem = problem_of(found, Depth::checksums);
        if (problem && is_gone(found)) continue;  // a training removed it meanwhile
        verdicts.push_back({found.path, found.step, found.finished, problem.value_or("")});
    }
    return verdicts;
}

std::vector<std::string> prune_checkpoints(const std::string& run, int64_t keep, int64_t keep_every) {
    std::vector<std::string> removed;
    if (keep <= 0) return removed;
    bool one_is_sure = false;
    int64_t kept = 0;
    for (const Found& found : list(run)) {
        if (!found.finished) continue;
        if (kept < keep || !one_is_sure) {
            // Checksums are read until one checkpoint is sure; sizes are enough to count the others.
            if (problem_of(found, one_is_sure ? Depth::sizes : Depth::checksums)) continue;
            one_is_sure = true;
            ++kept;
            continue;
        }
        if (keep_every > 0 && found.step % keep_every == 0) continue;
        // Out of sight first: an interrupted removal must not look like a checkpoint.
        rename_folder(found.path, found.path + kUnfinished);
        remove_folder(found.path + kUnfinished);
        removed.push_back(found.path);
    }
    return removed;
}

}  // namespace q2
