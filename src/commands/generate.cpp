#include "commands/generate.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/rng.h"
#include "commands/sampling.h"
#include "ops/host_copy.h"
#include "train/run_folder.h"
#include "train/session.h"

namespace q2 {
namespace {

struct GenerateOptions {
    std::string run, prompt;
    std::vector<int32_t> ids;
    int64_t tokens = 400;
    uint64_t seed = 0;
    SamplingOptions sampling{.temperature = 0.8};
};

/// The model run on a context, one sequence at a time. A context shorter than the sequence is filled up
/// behind its end, where a causal model does not look.
class Generator {
  public:
    Generator(Session& session, int64_t step) : s_(session), sequence_(session.config().data.sequence) {
        const StepState state{.seed = s_.config().train.seed, .step = uint32_t(step)};
        ops().upload(s_.ctx(), memory().state, &state, sizeof(state));
        select_recipes(memory().model, step);
        prepare_weights(s_.ctx(), memory().model, memory().state, false);
    }

    /// Logits (V) of the token that follows `ids`.
    std::vector<float> next_logits(const std::vector<int32_t>& ids) {
        const int64_t count = std::min<int64_t>(int64_t(ids.size()), sequence_);
        std::vector<int32_t> context(size_t(sequence_), ids.back());
        std::copy(ids.end() - count, ids.end(), context.begin());
        ops().upload(s_.ctx(), memory().ids.data, context.data(), memory().ids.bytes());
        const Pass pass{
            s_.ctx(), memory().model, memory().eval, memory().state, memory().ids, memory().targets, {}};
        forward(pass);
        const Tensor logits = memory().eval.logits.slice(0, 1);
        head_logits(pass, logits, count - 1, 1);
        return host_floats(s_.ctx(), logits);
    }

  private:
    const Ops& ops() { return *s_.ctx().ops; }
    TrainingMemory& memory() { return s_.memory(); }

    Session& s_;
    int64_t sequence_;
};

std::vector<int32_t> prompt_ids(const GenerateOptions& o, const Config& c) {
    const bool bytes = c.data.tokenizer == "bytes";
    check(o.prompt.empty() || bytes, Exit::usage,
          "--prompt: this run's tokens are not bytes; give --ids (scripts/tokenize.py turns text into ids "
          "and back)");
    check(o.prompt.empty() || o.ids.empty(), Exit::usage, "--prompt and --ids: give one of them");
    std::vector<int32_t> ids = o.ids;
    for (const char byte : o.prompt) ids.push_back(uint8_t(byte));
    if (ids.empty()) ids.push_back(bytes ? '\n' : 0);
    for (const int32_t id : ids)
        check(id >= 0 && id < c.model.vocab, Exit::usage, "--ids: ", id, " is no token of the model, 0 to ",
              c.model.vocab - 1);
    return ids;
}

void print_token(int32_t id, bool bytes) {
    if (bytes)
        std::fputc(id, stdout);
    else
        std::printf("%d ", id);
    std::fflush(stdout);
}

int generate(const GenerateOptions& o) {
    check_sampling(o.sampling);
    const RunCheckpoint checkpoint = open_run(o.run);
    const bool bytes = checkpoint.config.data.tokenizer == "bytes";
    std::vector<int32_t> ids = prompt_ids(o, checkpoint.config);
    Session session(checkpoint.config, 1);
    load_checkpoint(session, checkpoint);
    Generator generator(session, checkpoint.step - 1);
    const DrawStream draws{uint32_t(o.seed), uint32_t(o.seed >> 32), uint32_t(Stream::sampling), 0};
    for (const int32_t id : ids) print_token(id, bytes);
    for (int64_t i = 0; i < o.tokens; ++i) {
        ids.push_back(sample_token(generator.next_logits(ids), o.sampling, draws.uniform(uint64_t(i), 0)));
        print_token(ids.back(), bytes);
    }
    std::puts("");
    return int(Exit::ok);
}

}  // namespace

void add_generate(CLI::App& app, std::function<int()>& run) {
    const auto options = std::make_shared<GenerateOptions>();
    CLI::App* command = app.add_subcommand("generate", "Continue a prompt with a run's newest checkpoint");
    command->add_option("RUN", options->run, "The run's folder")->required();
    command->add_option("--prompt", options->prompt, "Text to continue, where tokens are bytes");
    command->add_option("--ids", options->ids, "Token ids to continue");
    command->add_option("--tokens", options->tokens, "How many tokens to add")
        ->check(CLI::Range(int64_t(1), int64_t(1) << 40))
        ->capture_default_str();
    command->add_option("--temperature", options->sampling.temperature, "0: always the most likely token")
        ->capture_default_str();
    command->add_option("--top-k", options->sampling.top_k, "Choose among the k most likely tokens; 0: all")
        ->capture_default_str();
    command
        ->add_option("--top-p", options->sampling.top_p,
                     "Choose among the fewest tokens of this total probability")
        ->capture_default_str();
    command->add_option("--seed", options->seed, "Of the draws: the same seed gives the same text")
        ->capture_default_str();
    command->callback([options, &run] { run = [options] { return generate(*options); }; });
}

}  // namespace q2
