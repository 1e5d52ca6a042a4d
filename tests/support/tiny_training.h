// A tiny model at work, step by step.
#pragma once

#include "tests/support/tiny_run.h"
#include "train/session.h"
#include "train/snapshot.h"
#include "train/step.h"

namespace q2::test {

struct TinyTraining {
    explicit TinyTraining(const Config& config)
        : session(config),
          data({config.data.train, config.data.format, config.data.sequence, config.model.vocab},
               SampleOrder::shuffled, config.train.seed),
          val({config.data.val, config.data.format, config.data.sequence, config.model.vocab},
              SampleOrder::sequential) {
        session.initialise();
    }

    /// The weights where the CPU's ops see them.
    float* weights(const std::string& name) {
        const Model& model = session.memory().model;
        return model.params.as<float>() + model.table.find(name).offset;
    }
    std::vector<float> copy(const Tensor& flat) const {
        return {flat.as<float>(), flat.as<float>() + flat.size()};
    }
    /// Writes a checkpoint after `step` steps into the folder `run`; returns its folder.
    std::string save(const std::string& run, int64_t step) {
        Snapshot copy(session.ctx(), session.memory());
        copy.take();
        return save_checkpoint(run, session.meta(step), copy.files(session.config().model));
    }
    /// Samples 0.. of the training data as the training micro-batch, which the pass then runs on.
    Pass first_micro_batch() {
        TrainingMemory& m = session.memory();
        const Activations& act = m.train;
        data.fill(0, act.shape.batch, m.ids.as<int32_t>(), m.targets.as<int32_t>());
        *m.state = StepState{};
        std::fill_n(m.model.grads.as<float>(), m.model.grads.size(), 0.0f);
        select_recipes(m.model, 0);
        prepare_weights(session.ctx(), m.model, m.state, false);
        return {session.ctx(),
                m.model,
                m.train,
                m.state,
                m.ids.slice(0, act.tokens()),
                m.targets.slice(0, act.tokens()),
                {}};
    }

    Session session;
    DataLoader data, val;
    Training training{session.ctx(), session.config(), session.memory(), data};
};

}  // namespace q2::test
