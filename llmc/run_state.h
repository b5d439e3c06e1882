// What a run must know, beyond llm.c's model and optimizer files, to go on as if it had never stopped. A
// checkpoint keeps it as JSON, in run_%08d.json.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/data_position.h"
#include "llmc/loss_scaling.h"
#include "llmc/outliers.h"

// Which steps were not applied, and the series that decide it.
struct StepJudge {
    double loss_limit = 0, norm_limit = 0;  // z-scores beyond which a step is skipped; 0: never
    OutlierDetector losses, norms;
    int not_finite = 0, outliers = 0;  // steps that were skipped for it

    struct Verdict {
        double loss_z = 0, norm_z = 0;  // NaN: not known
        bool not_finite = false, outlier = false;
        bool applied() const { return !not_finite && !outlier; }
    };
    // Of the next step, in order. factor: 0 where loss or norm is not finite (global_norm.h).
    Verdict judge(float loss, float norm, float factor);
};

struct RunState {
    std::string precision;           // of the run that saved it
    uint64_t seed = 0;               // --seed
    std::vector<SavedShard> shards;  // of the training data
    uint64_t chunk_tokens = 0;  // tokens of a sample, in which the data position counts: see DataPosition
    uint64_t token_in_sample = 0;
    uint64_t coin_state = 0;  // of sampling
    LossScaling scaling;
    StepJudge judge;
};

std::string run_state_to_json(const RunState& state);

// Error, naming `path`, if anything is missing or of another kind.
RunState run_state_from_json(const std::string& text, const std::string& path);
