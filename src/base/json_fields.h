// Settings declared once: a Field points at a member and says what it may hold. Reading JSON, `--set`, the
// resolved dump, help and the Markdown table all follow from a list of fields.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/strict_json.h"

namespace q2 {

/// The numbers a setting may hold; `open` ends do not belong to it.
struct NumberRange {
    double low = -std::numeric_limits<double>::infinity();
    double high = std::numeric_limits<double>::infinity();
    bool open_low = false, open_high = false;

    bool holds(double x) const {
        return (open_low ? x > low : x >= low) && (open_high ? x < high : x <= high);
    }
    std::string text() const;  ///< "1 to 8", "above 0", "0 to below 1"; empty if unbounded
};

struct Field {
    using Target = std::variant<int64_t*, uint64_t*, double*, bool*, std::string*, std::vector<std::string>*,
                                nlohmann::json*>;

    std::string name;  ///< dotted: "model.width"
    Target target;     ///< the member; its value when the field is made is the default
    std::string help;  ///< one line, with units
    NumberRange range = {};
    std::vector<std::string> choices = {};  ///< of a string; empty: any

    std::string type() const;     ///< "integer", "string", ...
    std::string allowed() const;  ///< range or choices; empty: anything of the type
    nlohmann::json value() const;
    /// Checks type, range and choices; `origin` begins the message (Exit::config).
    void assign(const nlohmann::json& value, const std::string& origin) const;
};

/// Sets the fields that a nested object names and leaves the others. Throws Exit::config for unknown keys,
/// with the nearest right name, and for wrong values.
void read_fields(const std::vector<Field>& fields, const nlohmann::json& object, const std::string& origin);
/// "key=value": the value as JSON if it parses, else as a string. Exit::usage if there is no "=".
void apply_override(const std::vector<Field>& fields, const std::string& assignment);

/// The values, nested, in the fields' order.
nlohmann::ordered_json dump_fields(const std::vector<Field>& fields);
/// One indented line a field: name, type, default, range and help.
std::string help_text(const std::vector<Field>& fields);
/// One Markdown table a group (the part of the name before the first dot).
std::string markdown_tables(const std::vector<Field>& fields);

/// The candidate nearest to `word` by edit distance, or empty if none is near.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace q2
