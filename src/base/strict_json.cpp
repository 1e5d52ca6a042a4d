#include "base/strict_json.h"

#include <set>
#include <vector>

#include "base/check.h"
#include "base/files.h"

namespace q2 {
namespace {

using nlohmann::json;

constexpr size_t kMaxFileBytes = 16 << 20;  // a config is a few KB; a larger file is the wrong one
constexpr size_t kMaxShown = 80, kMaxReason = 300;

std::string cut(std::string_view text, size_t most) {
    std::string out(text.substr(0, most));
    if (text.size() > most) out.replace(most - 3, 3, "...");
    for (char& c : out)
        if (uint8_t(c) < 0x20 || c == 0x7f) c = '?';
    return out;
}

/// Refuses what nlohmann takes silently: a key given twice (the last would win), any depth, any number.
class Strict {
  public:
    Strict(const std::string& origin, const JsonLimits& limits) : origin_(origin), limits_(limits) {}

    bool operator()(int depth, json::parse_event_t event, json& parsed) {
        check(size_t(depth) <= limits_.depth, Exit::data, origin_, ": nested deeper than ", limits_.depth,
              " levels");
        check(++values_ <= limits_.values, Exit::data, origin_, ": more than ", limits_.values,
              " values; this is no such file");
        if (event == json::parse_event_t::object_start) keys_.emplace_back();
        if (event == json::parse_event_t::object_end) keys_.pop_back();
        if (event == json::parse_event_t::key)
            check(keys_.back().insert(parsed.get<std::string>()).second, Exit::data, origin_, ": the key ",
                  shown(parsed), " is given twice in one object; keep one");
        return true;
    }

  private:
    const std::string& origin_;
    const JsonLimits& limits_;
    size_t values_ = 0;
    std::vector<std::set<std::string>> keys_;
};

/// "[json.exception.parse_error.101] parse error at line 3, ..." without its first word. It quotes what was
/// read, which can be megabytes.
std::string reason_of(const json::exception& e) {
    const std::string_view what = e.what();
    const size_t end = what.find("] ");
    return cut(end == what.npos ? what : what.substr(end + 2), kMaxReason);
}

}  // namespace

std::string clipped(std::string_view text) { return cut(text, kMaxShown); }

std::string shown(const json& value) {
    return clipped(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

bool is_utf8(const std::string& text) {
    const json value = text;
    return value.dump(-1, ' ', false, json::error_handler_t::ignore) ==
           value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json parse_json(std::string_view text, const std::string& origin, const JsonLimits& limits) {
    check(text.find_first_not_of(" \t\r\n") != text.npos, Exit::data, origin,
          ": not valid JSON: there is no text");
    // nlohmann takes one for the text's end.
    check(text.find('\0') == text.npos, Exit::data, origin, ": not valid JSON: byte ", text.find('\0'),
          " is NUL; this is no text");
    try {
        return json::parse(text.begin(), text.end(), Strict(origin, limits));
    } catch (const json::out_of_range& e) {
        fail(Exit::data, origin, ": ", reason_of(e), ": a number beyond 1.8e308");
    } catch (const json::exception& e) {
        fail(Exit::data, origin, ": not valid JSON: ", reason_of(e));
    }
}

json read_json_file(const std::string& path) { return parse_json(read_file(path, kMaxFileBytes), path); }

}  // namespace q2
