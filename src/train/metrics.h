// metrics.jsonl: one JSON object a line, with at least an integer `step` (docs name the other keys). A number
// that is not finite is written as null.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace q2 {

/// Appends; each record is in the file when write() returns. Throws Exit::data.
class MetricsWriter {
  public:
    explicit MetricsWriter(const std::string& path);
    ~MetricsWriter();
    MetricsWriter(const MetricsWriter&) = delete;
    MetricsWriter& operator=(const MetricsWriter&) = delete;

    void write(const nlohmann::json& record);
    /// Puts all records on the disk. Any thread may call it beside write().
    void flush();

  private:
    std::string path_;
    int descriptor_;
};

/// All records. A torn last line, of a run that was killed, is left out; any other bad line is an error with
/// its number.
std::vector<nlohmann::json> read_metrics(const std::string& path);

/// Where the records end that a resume goes on from.
struct MetricsEnd {
    double seconds = 0;           ///< the last record's that has them
    int64_t evaluated_step = -1;  ///< the last with a val_loss
};

/// For a resume at `step`: drops the records of this and later steps and a torn last line. A missing file is
/// fine.
MetricsEnd truncate_metrics(const std::string& path, int64_t step);

}  // namespace q2
