// quartet2 verify: whether a run's checkpoints, one checkpoint, a token file or a safetensors file is whole.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace CLI {
class App;
}

namespace q2 {

/// What to hold token files to.
struct VerifyOptions {
    std::string format = "auto";  ///< of token files: auto, uint16 or uint32
    int64_t vocab = 0;            ///< every token is below it; 0: tokens are not looked at
};

/// {"path", "kind", "good", "parts": [{"path", "good", ...}]}: `problem` where a part is not good, `note`
/// where there is something to say; good is null for what a save left unfinished. Throws Exit::data if there
/// is nothing at `path` that can be verified.
nlohmann::ordered_json verify_path(const std::string& path, const VerifyOptions& options);

/// Adds the subcommand; when it is chosen, `run` becomes its action.
void add_verify(CLI::App& app, std::function<int()>& run);

}  // namespace q2
