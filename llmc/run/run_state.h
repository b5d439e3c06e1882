// The state of a run beyond llm.c's model and optimizer files: with it, a resumed run is bit-identical to an
// uninterrupted one. A checkpoint keeps it as JSON, in run_%08d.json.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/data/saved_shards.h"
#include "llmc/model/loss_scaling.h"
#include "llmc/run/division.h"
#include "llmc/run/outliers.h"
#include "llmc/run/run_folder.h"

// Decides which updates are skipped, from the series of losses and gradient norms, and counts them.
struct StepJudge {
    double loss_limit = 0, norm_limit = 0;  // z-scores above which an update is skipped; 0: never
    OutlierDetector losses, norms;
    int not_finite = 0, outliers = 0;                  // updates skipped so far
    int not_finite_in_a_row = 0, finite_in_a_row = 0;  // the last steps; one of the two is 0
    static constexpr int healthy_stretch = 25;

    // Whether the parameters after `step` steps end a stretch of finite ones.
    bool is_healthy(int step) const { return finite_in_a_row >= std::min(step, healthy_stretch); }

    struct Verdict {
        double loss_z = 0, norm_z = 0;  // z-scores; NaN: unknown
        bool not_finite = false, outlier = false;
        bool applied() const { return !not_finite && !outlier; }
    };
    // Judges the next step; call it for all steps, in order. factor is 0 if loss or norm is not finite
    // (global_norm.h).
    Verdict judge(float loss, float norm, float factor);
};

// What the validations of a run have found so far. A loss that is not finite is never the best.
struct Validations {
    int last_step = -1, best_step = -1;  // -1: none
    double last_loss = 0, best_loss = 0;
    int since_best = 0;     // validations after the best one
    std::string data = "";  // checksum of the tokens that they read; "": unknown

    // Counts a validation. Returns whether its loss is the lowest so far; `may_be_best`: whether it counts.
    bool add(int step, double loss, bool may_be_best);
    bool operator==(const Validations&) const = default;
};

// Of a mixture; no shares: there is none.
struct SavedMixture {
    std::vector<double> shares = {};
    uint64_t sequences = 0;  // drawn so far
};

struct RunState {
    std::string precision;           // storage type of the run that saved it
    uint64_t seed = 0;               // --seed
    std::vector<SavedShard> shards;  // of the training data
    uint64_t chunk_tokens = 0;       // DataPosition::sample_tokens
    uint64_t token_in_sample = 0, first_token = 0;
    SavedMixture mixture = {};
    uint64_t coin_state = 0;  // of the random numbers for text samples
    std::string options;      // that made the checkpoint: options_text() without the folder
    std::string tokenizer;    // of the training data, as tokenizer_info.h writes it; "": unknown
    int positions = 0;        // of the model that are trained; 0: all, as in a model of llm.c
    int max_steps = 0;        // length of the run, which its learning rate followed; 0: unknown
    LossScaling scaling;
    StepJudge judge;
    int healthy_checkpoint = -1;  // step of the newest healthy checkpoint, this one included; -1: none
    Validations validations;
    WrittenFor written_for = WrittenFor::schedule;  // this checkpoint
    Division division = {};                         // of the steps from here on
    std::optional<uint64_t> tokens;  // trained on so far; none: the checkpoint has no run file, as llm.c's
};

std::string run_state_to_json(const RunState& state);

// Throws Error, which names `path`, if a field is missing or has the wrong type or an impossible value.
RunState run_state_from_json(const std::string& text, const std::string& path);

// The extra checkpoints in the folder, as their own run_%08d.json say.
ExtraCheckpoints find_extra_checkpoints(const std::string& folder);
