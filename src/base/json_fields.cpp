#include "base/json_fields.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

namespace q2 {
namespace {

using nlohmann::json;

constexpr size_t kMaxNameForSuggestion = 64;

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text + separator);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

std::string number_text(double x) { return json(x).dump(); }

/// 32000, not 32000.0: a range's ends read as the integers they mostly are.
std::string bound_text(double x) {
    const bool whole = x == double(int64_t(std::clamp(x, -9e15, 9e15)));
    return whole ? std::to_string(int64_t(x)) : number_text(x);
}

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
    return text;
}

bool begins_with_group(const std::string& name, const std::string& group) {
    return name.size() > group.size() && name.starts_with(group) && name[group.size()] == '.';
}

std::string leaf_of(const std::string& name) { return name.substr(name.rfind('.') + 1); }

/// An override's value that is JSON, or is meant to be: then the syntax error is the better message. A
/// pattern such as [ab]*.bin is text.
bool is_json(const std::string& text) {
    return json::accept(text) || text.starts_with('{') || text.starts_with('"') || text.starts_with("[\"") ||
           text.starts_with("[{");
}

/// Strict readers: a float is not an integer, a number is not a string.
bool read(const json& value, int64_t& out) {
    if (!value.is_number_integer()) return false;
    if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX)) return false;
    out = value.get<int64_t>();
    return true;
}
bool read(const json& value, uint64_t& out) {
    if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0)) return false;
    out = value.get<uint64_t>();
    return true;
}
bool read(const json& value, double& out) {
    if (!value.is_number()) return false;
    out = value.get<double>();
    return true;
}
bool read(const json& value, bool& out) {
    if (!value.is_boolean()) return false;
    out = value.get<bool>();
    return true;
}
/// No NUL: the system would take the path before it.
bool read(const json& value, std::string& out) {
    if (!value.is_string()) return false;
    out = value.get<std::string>();
    return out.find('\0') == std::string::npos;
}
/// One string stands for a list of one.
bool read(const json& value, std::vector<std::string>& out) {
    if (value.is_string()) return read(value, out.emplace_back());
    if (!value.is_array()) return false;
    out.assign(value.size(), "");
    return std::equal(value.begin(), value.end(), out.begin(),
                      [](const json& item, std::string& text) { return read(item, text); });
}
bool read(const json& value, json& out) {
    out = value;
    return true;
}

[[noreturn]] void fail_unknown(const std::vector<Field>& fields, const std::string& name,
                               const std::string& origin) {
    std::vector<std::string> names, siblings;
    const std::string group = name.substr(0, name.rfind('.') + 1);
    for (const Field& field : fields) {
        // A right setting in a wrong group is a likelier slip than a misspelling.
        if (leaf_of(field.name) == leaf_of(name))
            fail(Exit::config, origin, ": ", clipped(name), ": no such key; did you mean ", field.name, "?");
        names.push_back(field.name);
        const size_t dot = field.name.find('.', group.size());
        if (!field.name.starts_with(group)) continue;
        const std::string sibling = field.name.substr(0, dot);
        if (siblings.empty() || siblings.back() != sibling) siblings.push_back(sibling);
    }
    names.insert(names.end(), siblings.begin(), siblings.end());
    const std::string near = nearest_name(name, names);
    if (!near.empty())
        fail(Exit::config, origin, ": ", clipped(name), ": no such key; did you mean ", near, "?");
    fail(Exit::config, origin, ": ", clipped(name), ": no such key; known here: ", joined(siblings, ", "));
}

void read_object(const std::vector<Field>& fields, const json& object, const std::string& origin,
                 const std::string& prefix) {
    for (const auto& [key, value] : object.items()) {
        const std::string name = prefix + key;
        // Otherwise {"a.b": 1, "a": {"b": 2}} would give one setting twice.
        check(key.find('.') == std::string::npos, Exit::config, origin, ": ", clipped(name),
              ": write nested objects in place of dots");
        const auto field =
            std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == name; });
        if (field != fields.end()) {
            field->assign(value, origin);
            continue;
        }
        const bool group = std::any_of(fields.begin(), fields.end(),
                                       [&](const Field& f) { return begins_with_group(f.name, name); });
        if (!group) fail_unknown(fields, name, origin);
        check(value.is_object(), Exit::config, origin, ": ", name, " = ", shown(value),
              ": an object of settings is needed");
        read_object(fields, value, origin, name + ".");
    }
}

/// What is wrong with a value that only looks right.
const char* type_hint(const json& value) {
    if (value.is_string() && value.get<std::string>().find('\0') != std::string::npos) return " without NUL";
    if (!value.is_number_float()) return "";
    const double x = value.get<double>();
    if (std::fabs(x) >= 9.2e18) return " of at most 64 bits";
    return x == std::floor(x) ? ", written without point and exponent" : "";
}

std::string markdown_cell(const std::string& text) {
    std::string cell;
    for (char c : text) {
        if (c == '|') cell += '\\';
        cell += c;
    }
    return cell;
}

}  // namespace

std::string NumberRange::text() const {
    const bool low_end = low > -std::numeric_limits<double>::infinity();
    const bool high_end = high < std::numeric_limits<double>::infinity();
    if (!low_end && !high_end) return "";
    const std::string from = concat(open_low ? "above " : "", bound_text(low));
    const std::string to = concat(open_high ? "below " : "", bound_text(high));
    if (!high_end) return open_low ? from : concat("at least ", from);
    if (!low_end) return open_high ? to : concat("at most ", to);
    return from + " to " + to;
}

std::string Field::type() const {
    static const char* const names[] = {"integer", "integer",         "number", "true or false",
                                        "string",  "list of strings", "JSON"};
    return names[target.index()];
}

std::string Field::allowed() const { return choices.empty() ? range.text() : joined(choices, ", "); }

nlohmann::json Field::value() const {
    return std::visit([](auto* member) { return json(*member); }, target);
}

void Field::assign(const json& value, const std::string& origin) const {
    auto set = [&](auto* member) {
        using Value = std::remove_pointer_t<decltype(member)>;
        Value parsed{};
        bool allowed_value = true;
        if constexpr (std::is_arithmetic_v<Value>)
            allowed_value = !value.is_number() || range.holds(value.get<double>());
        else if constexpr (std::is_same_v<Value, std::string>)
            allowed_value =
                !value.is_string() || choices.empty() ||
                std::find(choices.begin(), choices.end(), value.get<std::string>()) != choices.end();
        check(allowed_value, Exit::config, origin, ": ", name, " = ", shown(value), ": must be ",
              choices.empty() ? "" : "one of ", allowed());
        check(read(value, parsed), Exit::config, origin, ": ", name, " = ", shown(value), ": needs type ",
              type(), type_hint(value));
        *member = std::move(parsed);
    };
    std::visit(set, target);
}

void read_fields(const std::vector<Field>& fields, const json& object, const std::string& origin) {
    check(object.is_object(), Exit::config, origin, ": ", shown(object), ": an object of settings is needed");
    read_object(fields, object, origin, "");
}

void apply_override(const std::vector<Field>& fields, const std::string& assignment) {
    const std::string origin = "--set " + clipped(assignment);
    const size_t equals = assignment.find('=');
    check(equals != std::string::npos && equals > 0, Exit::usage, origin, ": write key=value");
    const std::string key = assignment.substr(0, equals), text = assignment.substr(equals + 1);
    check(is_utf8(text), Exit::usage, origin, ": the value is not UTF-8 text");
    json value = is_json(text) ? parse_json(text, origin) : json(text);
    // Wrapped from the inside out, so that an override is read exactly as a file is.
    const std::vector<std::string> parts = split(key, '.');
    const size_t depth = JsonLimits{}.depth;
    check(parts.size() <= depth, Exit::config, origin, ": nested deeper than ", depth, " levels");
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        json outer = json::object();
        outer[*part] = std::move(value);
        value = std::move(outer);
    }
    read_fields(fields, value, origin);
}

nlohmann::ordered_json dump_fields(const std::vector<Field>& fields) {
    nlohmann::ordered_json root = nlohmann::ordered_json::object();
    for (const Field& field : fields) {
        std::string pointer = "/" + field.name;
        std::replace(pointer.begin(), pointer.end(), '.', '/');
        root[nlohmann::ordered_json::json_pointer(pointer)] = field.value();
    }
    return root;
}

std::string help_text(const std::vector<Field>& fields) {
    std::string text;
    for (const Field& field : fields) {
        text += concat("  ", field.name, " (", field.type(), ", default ", shown(field.value()), ")\n      ",
                       field.help);
        text += field.allowed().empty() ? "\n" : concat("; ", field.allowed(), "\n");
    }
    return text;
}

std::string markdown_tables(const std::vector<Field>& fields) {
    std::string text, group;
    for (const Field& field : fields) {
        const std::string own = field.name.substr(0, field.name.find('.'));
        if (own != group) {
            text += concat(text.empty() ? "" : "\n", "## ", own,
                           "\n\n| key | type | default | values | meaning |\n|---|---|---|---|---|\n");
            group = own;
        }
        text += concat("| `", field.name, "` | ", field.type(), " | `", markdown_cell(shown(field.value())),
                       "` | ", markdown_cell(field.allowed()), " | ", markdown_cell(field.help), " |\n");
    }
    return text;
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
    if (word.size() > kMaxNameForSuggestion) return "";
    // Levenshtein, a row at a time; more than a third of the word (and 2) apart is no help to anybody.
    size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
    std::string best;
    for (const std::string& candidate : candidates) {
        std::vector<size_t> row(candidate.size() + 1);
        std::iota(row.begin(), row.end(), size_t(0));
        for (size_t i = 0; i < word.size(); ++i) {
            size_t diagonal = row[0]++;
            for (size_t j = 0; j < candidate.size(); ++j) {
                const size_t substituted = diagonal + (word[i] != candidate[j]);
                diagonal = row[j + 1];
                row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, substituted});
            }
        }
        if (row.back() < best_distance) {
            best_distance = row.back();
            best = candidate;
        }
    }
    return best;
}

}  // namespace q2
