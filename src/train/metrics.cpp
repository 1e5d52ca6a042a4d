#include "train/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/files.h"

namespace q2 {
namespace {

using Json = nlohmann::json;

bool is_record(const Json& json) {
    return json.is_object() && json.contains("step") && json["step"].is_number_integer();
}

/// f(record, line) for every line but a torn last one.
template <class F>
void for_each_record(const MappedFile& file, F f) {
    std::string_view rest = file.text();
    for (int64_t number = 1; !rest.empty(); ++number) {
        const size_t end = rest.find('\n');
        const bool torn = end == std::string_view::npos;
        const std::string_view line = rest.substr(0, end);
        rest.remove_prefix(torn ? rest.size() : end + 1);
        const Json record = Json::parse(line, nullptr, false);
        if (torn && record.is_discarded()) return;
        check(is_record(record), Exit::data, file.path(), ":", number,
              ": not a JSON object with an integer \"step\"; remove the damaged line");
        f(record, line);
    }
}

}  // namespace

MetricsWriter::MetricsWriter(const std::string& path)
    : path_(path),
      // Not blocking: a pipe would wait for its reader for ever.
      descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666)) {
    const int error = errno;
    struct stat status {};
    const bool is_file = descriptor_ < 0 || (::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode));
    if (!is_file) ::close(descriptor_);
    check(is_file && !(descriptor_ < 0 && error == ENXIO), Exit::data, path,
          ": not a regular file (a pipe, a device or a socket); move it away");
    check(descriptor_ >= 0, Exit::data, path, ": cannot be written: ", std::strerror(error));
    sync_folder(std::filesystem::path(path).parent_path());
}

MetricsWriter::~MetricsWriter() { ::close(descriptor_); }

void MetricsWriter::write(const Json& record) {
    require(is_record(record), "a metrics record without a step: ", record.dump());
    const std::string line = record.dump() + "\n";
    // One call a line, so that a killed run tears at most its last one.
    const ssize_t written = ::write(descriptor_, line.data(), line.size());
    check(written == ssize_t(line.size()), Exit::data, path_,
          ": cannot be written: ", written < 0 ? std::strerror(errno) : "the disk is full");
}

void MetricsWriter::flush() {
    const bool flushed = ::fsync(descriptor_) == 0;
    check(flushed, Exit::data, path_, ": cannot be flushed: ", std::strerror(errno));
}

std::vector<Json> read_metrics(const std::string& path) {
    std::vector<Json> records;
    for_each_record(MappedFile(path),
                    [&](const Json& record, std::string_view) { records.push_back(record); });
    return records;
}

MetricsEnd truncate_metrics(const std::string& path, int64_t step) {
    MetricsEnd end;
    if (!std::filesystem::exists(path)) return end;
    const MappedFile file(path);
    AtomicFile out(path);
    for_each_record(file, [&](const Json& record, std::string_view line) {
        if (record["step"].get<int64_t>() >= step) return;
        out.write(line);
        out.write("\n");
        if (record.contains("seconds") && record["seconds"].is_number()) end.seconds = record["seconds"];
        if (record.contains("val_loss")) end.evaluated_step = record["step"];
    });
    out.commit();
    return end;
}

}  // namespace q2
