// Runs with --optimizer muon: what they save, and several processes. How they resume: train_resume_test.cpp.
#include "tests/distributed_run.h"

static const Words muon = {"--optimizer", "muon", "-l", "0.003", "-q", "1", "-c", "0.1", "-n", "10"};

static ProgramResult train_here(const Distributed& test, const std::string& folder, const Words& options) {
    return run_program(with({program, "-i", test.data.train, "-e", five_layers, "-b", "3", "-t", "17", "-s",
                             "0", "--device", "cpu", "-o", folder},
                            with(muon, options)));
}

struct MuonRun : Distributed {
    void SetUp() override {}
};
struct MuonJob : Distributed {};

// The matrices have one moment, so that the state is smaller than AdamW's, which is refused.
TEST_F(MuonRun, KeepsOneMomentOfMatrices) {
    const std::string run = folder("run");
    expect_ok(train_here(*this, run, {"-x", "10"}));
    const ModelConfig config = read_model_header(model_path(run, 10));
    size_t matrices = 0;
    for (const TensorRange& range : linear_weight_ranges(config, 0, config.num_layers))
        matrices += range.count;
    const uint64_t adamw = moment_bytes(config, false, {});
    EXPECT_EQ(moment_bytes(config, false, {.kind = OptimizerKind::muon}), adamw - 4 * matrices);
    EXPECT_EQ(read_optimizer_state(optimizer_path(run, 10), config).share.kind, OptimizerKind::muon);
    expect_refusal(train_here(*this, run, {"-x", "20", "-y", "1", "--optimizer", "adamw"}),
                   "written with --optimizer muon");
}

// Losses of two processes are those of one to rounding; two runs are bit-identical; one process resumes what
// two have saved.
TEST_F(MuonJob, TrainsLikeOneProcess) {
    const std::vector<double> one = train(1, muon, "one");
    for (const Words& machines : {Words{}, Words{"--ranks-per-node", "1"}}) {
        const std::string name = machines.empty() ? "two" : "two_machines";
        const std::vector<double> two = train(2, with(muon, machines), name);
        ASSERT_EQ(two.size(), one.size());
        for (size_t i = 0; i < one.size(); i++) EXPECT_NEAR(two[i], one[i], 1e-4) << "loss " << i;
        train(2, with(muon, machines), name + "_again");
        EXPECT_EQ(model_after(name, STEPS), model_after(name + "_again", STEPS));
        EXPECT_EQ(read_whole_file(optimizer_part_path(folder(name), STEPS, 1)),
                  read_whole_file(optimizer_part_path(folder(name + "_again"), STEPS, 1)));
    }
    delete_checkpoint(folder("two"), STEPS);
    const std::vector<double> resumed = train(1, with(muon, {"-y", "1"}), "two");
    ASSERT_FALSE(resumed.empty());
    EXPECT_NEAR(resumed.back(), one.back(), 1e-4);
}
