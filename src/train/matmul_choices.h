// The algorithms that a run's products were computed with, as a checkpoint keeps them: a resumed run that
// timed again could choose others, and add in another order.
#pragma once

#include <nlohmann/json.hpp>

#include "ops/ops.h"

namespace q2 {

inline constexpr const char* kMatmulKey = "matmul";  ///< in a manifest's `extra`

/// An array of {"product": [numbers], "algorithm": [hexadecimal texts]}.
nlohmann::json choices_to_json(const std::vector<MatmulChoice>& choices);

/// Throws Exit::data; `path`, of the manifest, begins the message.
std::vector<MatmulChoice> choices_from_json(const nlohmann::json& json, const std::string& path);

}  // namespace q2
