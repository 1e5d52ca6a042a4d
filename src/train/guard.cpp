#include "train/guard.h"

#include <cmath>

namespace q2 {
namespace {

/// Mean plus z deviations (of a sample), in float64 and from the oldest on, so that a restored window gives
/// the same bits.
float limit_of(const std::deque<float>& window, double z) {
    const double count = double(window.size());
    double sum = 0, squares = 0;
    for (const float x : window) sum += x;
    const double mean = sum / count;
    for (const float x : window) squares += (x - mean) * (x - mean);
    return float(mean + z * std::sqrt(squares / (count - 1)));
}

std::string limit_text(float limit) {
    return limit == StepState::kNoLimit ? "" : concat(" (limit ", limit, ")");
}

/// "a.bin at tokens 0, 512; b.bin at token 96": where the first sample of each micro-batch begins.
std::string batch_text(const Training& t, int64_t step) {
    std::string text;
    int64_t last_file = -1;
    for (int64_t number = 0; number < t.config.train.accumulate; ++number) {
        const auto where = t.data.location(first_sample(t.config, step, number));
        if (int64_t(where.file) == last_file) {
            text += concat(", ", where.offset);
            continue;
        }
        last_file = int64_t(where.file);
        text += concat(text.empty() ? "" : "; ", t.data.files()[size_t(where.file)].path(), " from token ",
                       where.offset);
    }
    return text;
}

std::string skip_text(const Training& t, int64_t step, const StepState& s) {
    return concat("step ", step + 1, " of ", t.config.train.steps, ": update skipped, loss ", s.loss,
                  limit_text(s.loss_limit), ", gradient norm ", s.grad_norm, limit_text(s.norm_limit),
                  "; micro-batches: ", batch_text(t, step));
}

std::deque<float> window_from(const nlohmann::json& json, size_t longest, const std::string& what) {
    const auto values = json.get<std::deque<float>>();
    check(values.size() <= longest, Exit::data, what, ": ", values.size(), " values, at most ", longest);
    for (const float x : values) check(std::isfinite(x), Exit::data, what, ": a value is not finite");
    return values;
}

int64_t count_from(const nlohmann::json& json, const std::string& what) {
    const auto count = json.get<int64_t>();
    check(json.is_number_integer() && count >= 0, Exit::data, what, " = ", json.dump(), ": not a count");
    return count;
}

}  // namespace

const char* skip_name(uint32_t reason) {
    return reason == kNonFinite ? "non_finite" : reason == kHighLoss ? "loss" : "grad_norm";
}

UpdateLimits UpdateGuard::limits() const {
    if (settings_.skip_zscore == 0 || int64_t(losses_.size()) < settings_.skip_window / 2) return {};
    return {limit_of(losses_, settings_.skip_zscore), limit_of(norms_, settings_.skip_zscore)};
}

void UpdateGuard::remember(const StepState& s) {
    consecutive_ = 0;
    if (settings_.skip_zscore == 0) return;
    losses_.push_back(s.loss);
    norms_.push_back(s.grad_norm);
    if (int64_t(losses_.size()) <= settings_.skip_window) return;
    losses_.pop_front();
    norms_.pop_front();
}

std::optional<std::string> UpdateGuard::judge(Training& t, int64_t step, const StepState& s) {
    if (s.skip == kNotSkipped) {
        remember(s);
        return {};
    }
    ++consecutive_;
    ++skipped_;
    const bool too_many = consecutive_ > settings_.max_skips;
    const std::string why =
        concat("It is step ", consecutive_,
               " in a row without an update; train.max_skips = ", settings_.max_skips, ". ");
    if (s.skip == kNonFinite && settings_.non_finite == "stop") report_non_finite(t, step, s);
    if (s.skip == kNonFinite && too_many) report_non_finite(t, step, s, why);
    const std::string text = skip_text(t, step, s);
    check(!too_many, Exit::non_finite, text, ". ", why, "Raise train.skip_zscore or train.max_skips");
    return concat(text, "; ", consecutive_, " in a row, ", skipped_, " in all");
}

nlohmann::json UpdateGuard::to_json() const {
    return {{"update_guard",
             {{"losses", losses_},
              {"grad_norms", norms_},
              {"consecutive", consecutive_},
              {"skipped", skipped_}}}};
}

void UpdateGuard::restore(const nlohmann::json& extra, const std::string& origin) {
    if (!extra.contains("update_guard")) return;
    const std::string what = origin + ": extra.update_guard.";
    try {
        const nlohmann::json& state = extra["update_guard"];
        const size_t longest = size_t(settings_.skip_window);
        losses_ = window_from(state.at("losses"), longest, what + "losses");
        norms_ = window_from(state.at("grad_norms"), longest, what + "grad_norms");
        check(losses_.size() == norms_.size(), Exit::data, what, "losses has ", losses_.size(),
              " values, grad_norms ", norms_.size());
        consecutive_ = count_from(state.at("consecutive"), what + "consecutive");
        skipped_ = count_from(state.at("skipped"), what + "skipped");
    } catch (const nlohmann::json::exception& error) {
        fail(Exit::data, what, " ", error.what());
    }
}

}  // namespace q2
