// Devices unlike those of CI, imitated on lavapipe by tests/vulkan_device_layer: what they do otherwise must
// not change results. Tests on cooperative matrices use the device that `dev/setup.sh newer-mesa` unpacks.
#include "llmc/base/file.h"
#include "llmc/distributed/communicator.h"
#include "llmc/files/checkpoint.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/launchpad/shaders.h"
#include "tests/other_device.h"
#include "tests/tiny_run.h"
#include "tests/vulkan_device_layer/spirv.h"

static const std::string with_newer_mesa = SOURCE_DIR "/.tools/bin/with-newer-mesa";

struct OtherDevices : testing::Test {
    Data data;
    std::string log;  // what train() printed last
    void SetUp() override {
        if (!environment("LLMC_TEST_DEVICE").empty()) GTEST_SKIP() << "these tests imitate their devices";
        setenv("VK_ADD_LAYER_PATH", BINARY_DIR "/vulkan_device_layer", 1);
        setenv("LAUNCHPAD_VALIDATION", "0", 1);  // it finds the imitation
        setenv("VK_LOADER_DEBUG", "error", 1);   // says if the layer is not found
        unsetenv("GTEST_TOTAL_SHARDS");
    }
    void TearDown() override {
        for (const char* name : {"VK_ADD_LAYER_PATH", "VK_INSTANCE_LAYERS", "VULKAN_DEVICE",
                                 "VK_LOADER_DEBUG", "LAUNCHPAD_SUBMISSION_MS"})
            unsetenv(name);
        set_vector_bits("");
    }
    // Of the runs that follow; "": the device as it is.
    void imitate(const std::string& words) {
        setenv("VK_INSTANCE_LAYERS", words.empty() ? "" : "VK_LAYER_LLMC_device", 1);
        setenv("VULKAN_DEVICE", words.c_str(), 1);
        setenv("XDG_CACHE_HOME", (data / ("cache of " + words)).c_str(), 1);
    }
    static ProgramResult expect_run(Words command) {
        const ProgramResult result = run_program(command);
        EXPECT_EQ(result.status, 0) << result.out << result.err;
        EXPECT_EQ(result.err.find("VK_LAYER_LLMC_device"), std::string::npos) << result.err;
        return result;
    }
    static void expect_tests(Words command, const std::string& filter) {
        command.push_back("--gtest_filter=" + filter);
        const ProgramResult result = expect_run(command);
        EXPECT_TRUE(contains(result.out, "[       OK ]"));
    }
    std::vector<double> train(const std::string& where, Words options, const std::string& output) {
        options.insert(options.end(), {"--device", where, "-o", data / output, "-s", "0"});
        log = output_of(data.run(options));
        return data.losses(data / output);
    }
    static void expect_losses(const std::vector<double>& losses, const std::vector<double>& cpu,
                              const std::string& what) {
        ASSERT_EQ(losses.size(), cpu.size()) << what;
        for (size_t i = 0; i < cpu.size(); i++) EXPECT_NEAR(losses[i], cpu[i], 1e-4) << what << " step " << i;
    }
};

// Programs of tests and the tests that concern the imitated device.
struct Imitation {
    const char *name, *words, *program, *filter;
    bool on_newer_mesa = false;
    const char* vector_bits = "256";  // of lavapipe: 32 for each invocation of a subgroup
};

struct ImitatedDevice : OtherDevices, testing::WithParamInterface<Imitation> {};

TEST_P(ImitatedDevice, passes) {
    const Imitation& p = GetParam();
    Words command = {BINARY_DIR "/" + std::string(p.program) + "_test"};
    if (p.on_newer_mesa) {
        if (!std::filesystem::exists(with_newer_mesa)) GTEST_SKIP() << "run dev/setup.sh newer-mesa";
        command.insert(command.begin(), with_newer_mesa);
    } else {
        set_vector_bits(p.vector_bits);
    }
    imitate(p.words);
    if (p.words == std::string("widths")) setenv("LAUNCHPAD_SUBMISSION_MS", "-1", 1);  // one by one
    expect_tests(command, p.filter);
}

// The tests of dropout and the classifier have values so small that flushing would change them.
static const Imitation imitations[] = {
    {"truncating_gelu", "halves flush", "gelu", "*/2.*"},
    {"truncating_layernorm", "halves flush", "layernorm", "*/2.*"},
    {"truncating_classifier", "halves", "classifier", "*/2.*"},
    {"truncating_encoder", "halves flush", "encoder", "*/2.*"},
    {"truncating_dropout", "halves", "dropout", "*/2.*"},
    {"truncating_muon", "halves flush", "muon", "MuonTyped/2.*"},
    {"truncating_decode_linear", "halves flush", "decode_linear", "*/2.*"},
    {"truncating_attention", "halves flush", "attention", "AttentionGpu/2.ForwardMatchesCpu"},
    {"truncating_matrices_with_swapped_lanes", "halves lanes", "matmul",
     "Matmul/2.MatrixResultsAreRoundedToNearest:Matmul/2.MatrixSplitKIsReduced", true},
    {"truncating_attention_with_swapped_lanes", "halves lanes", "attention",
     "AttentionGpu/2.MatrixForwardOfFewQueries:AttentionGpu/2.MatrixBackwardOfShortSequences", true},
    {"swapped_lanes_of_layernorm", "lanes", "layernorm", "Layernorm/1.Forward*"},
    {"smaller_subgroups_layernorm", "subgroups:4:8:8", "layernorm", "Layernorm/0.Forward*", false, "128"},
    {"larger_subgroups_layernorm", "subgroups:4:8:4", "layernorm", "Layernorm/*.Forward*"},
    {"larger_subgroups_decode_linear", "subgroups:4:8:4", "decode_linear", "*/0.*"},
    {"smaller_subgroups_next_token", "subgroups:4:8:8", "next_token", "*/0.*", false, "128"},
    {"larger_subgroups_next_token", "subgroups:4:8:4", "next_token", "*/0.*"},
    {"larger_subgroups_decode_attention", "subgroups:4:8:4", "decode_attention", "*/0.*"},
    {"matrices_without_16_bits", "no16bit", "layernorm", "Layernorm/0.Forward*", true},
    {"import_of_any_type", "import", "launchpad", "*RegisteredMemory"},
    {"gelu_without_int64", "noint64", "gelu", "*/0.*"},
    {"times_without_timestamps", "notimestamps", "launchpad", "Time.GpuSeconds"},
    {"tuning_without_timestamps", "notimestamps", "matmul", "Matmul/2.MatrixTilesAreTunedOnce", true},
    {"one_width_in_adamw", "widths", "adamw", "*/1.*"},
    {"one_width_in_attention", "widths", "attention", "AttentionGpu/1.ForwardMatchesCpu"},
    {"one_width_in_classifier", "widths", "classifier", "FusedClassifier*/1.*"},
    {"one_width_in_decode_attention", "widths", "decode_attention", "*/1.*"},
    {"one_width_in_decode_linear", "widths", "decode_linear", "*/1.*"},
    {"one_width_in_dropout", "widths", "dropout", "*/1.*"},
    {"one_width_in_encoder", "widths", "encoder", "Encoder/1.*"},
    {"one_width_in_gelu", "widths", "gelu", "*/1.*"},
    {"one_width_in_gradient_sum", "widths", "gradient_sum", "*/1.*"},
    {"one_width_in_layernorm", "widths", "layernorm", "Layernorm/1.*"},
    {"one_width_in_matmul", "widths", "matmul", "Matmul/1.ForwardGpuMatchesDouble"},
    {"one_width_in_muon", "widths", "muon", "MuonTyped/1.GpuMatchesCpu"},
    {"one_width_in_next_token", "widths", "next_token", "*/1.*"},
};
INSTANTIATE_TEST_SUITE_P(all, ImitatedDevice, testing::ValuesIn(imitations),
                         [](const auto& test) { return std::string(test.param.name); });

// The second rate makes gradients overflow: these updates are skipped, and their losses not logged.
TEST_F(OtherDevices, TruncatingConversionsChangeNoBitAndHideNoOverflow) {
    for (const char* rate : {"0.001", "0.3"}) {
        SCOPED_TRACE(rate);
        const Words options = {"--precision", "fp16", "-x", "12", "-l", rate, "-n", "12"};
        imitate("");
        const std::vector<double> losses = train("0", options, "nearest");
        imitate("halves");
        EXPECT_EQ(train("0", options, "truncating"), losses);
        EXPECT_EQ(losses.size() < 12, rate == std::string("0.3"));
        expect_bit_identical(data / "nearest", data / "truncating", 12);
        std::filesystem::remove_all(data / "nearest");
        std::filesystem::remove_all(data / "truncating");
    }
}

// --- the self-test finds what is wrong, and the run takes another version ---

// "wrong:1234" for a kernel, which the layer knows by its code.
static std::string fault(const std::string& word, const std::string& kernel) {
    for (const EmbeddedShader* shader = embedded_shaders; shader->name; shader++)
        if (kernel == shader->name) return word + ":" + Spirv::hash({shader->code, shader->end});
    ADD_FAILURE() << "no kernel " << kernel;
    return "";
}

struct SelfTest : OtherDevices {
    // Trains a fresh run; `notes`: lines that it must have.
    void expect_losses_of_cpu(const std::string& words, const Words& notes) {
        const std::vector<double> cpu = train("cpu", {"-x", "3"}, "cpu");
        ASSERT_EQ(cpu.size(), 3u);
        imitate(words);
        for (const bool first : {true, false}) {  // then the results are stored
            expect_losses(train("0", {"-x", "3"}, first ? "first" : "second"), cpu, words);
            for (const std::string& note : notes)
                EXPECT_EQ(log.find(note) != std::string::npos, first) << note << "\n" << log;
        }
    }
};

TEST_F(SelfTest, AWrongBitTakesTheNextVersion) {
    expect_losses_of_cpu(
        fault("wrong", "matmul4_fp32"),
        {"note: matmul4/fp32/tile:16x64 is not used on llvmpipe", "wrong result of the GPU"});
    const std::string list = expect_run({program, "--list-devices"}).out;
    EXPECT_TRUE(contains(list, ", matmul4/fp32/tile:16x64"));
}

TEST_F(SelfTest, WhatDoesNotCompileIsReplaced) {
    expect_losses_of_cpu(
        fault("fails", "layernorm_forward3_fp32") + " " + fault("null", "layernorm_backward3_fp32"),
        {"note: layernorm_forward3/fp32/block:32 is not used",
         "note: layernorm_backward3/fp32/block:32 is not", "built no pipeline"});
}

TEST_F(SelfTest, WhatHangsOrCrashesIsReplaced) {
    setenv("LAUNCHPAD_CHECK_SECONDS", "30", 1);
    expect_losses_of_cpu(fault("hangs", "layernorm_forward3_fp32") + " " + fault("crashes", "matmul4_fp32"),
                         {"note: matmul4/fp32 is not used on llvmpipe", ": the driver crashes",
                          "note: layernorm_forward3/fp32 is not used", ": the device hangs"});
    unsetenv("LAUNCHPAD_CHECK_SECONDS");
}

// Kernels in fp32 are checked before those in bf16 are built.
TEST_F(SelfTest, ACrashWhileKernelsAreBuiltIsThatOfNoOther) {
    imitate(fault("crashes", "matmul4_bf16"));
    const std::string out = expect_run({program, "-i", data.train, "-e", tiny, "-b", "1", "-t", "16",
                                        "--precision", "bf16", "--dry-run", "--device", "0"})
                                .out;
    EXPECT_TRUE(contains(out, "note: matmul4/bf16 is not used"));
    EXPECT_FALSE(contains(out, "fp32 is not used")) << out;
}

// Of more than 65,535 rows, as the largest batch that fits may have.
TEST_F(SelfTest, KernelsOfBatchesThatAreOnlyPlannedAreNotChecked) {
    imitate(fault("wrong", "matmul3_fp32"));
    const std::string out =
        expect_run(args(program, "-i", data.train, "-e", tiny, "-b 1 -t 16 --dry-run --device 0")).out;
    EXPECT_TRUE(contains(out, "the largest batch that fits is -b "));
    EXPECT_FALSE(contains(out, "matmul3/fp32")) << out;
}

TEST_F(SelfTest, ASizeOfSubgroupsThatIsIgnoredIsFound) {
    set_vector_bits("256");
    expect_losses_of_cpu("ignores:4:8", {});
}

TEST_F(SelfTest, ABaseThatIsIgnoredIsFound) {
    imitate("nobase");
    const ProgramResult result = data.run({"--device", "0"});
    EXPECT_EQ(result.status, 1) << result.out;
    EXPECT_TRUE(contains(result.out, "is not used on llvmpipe"));
    EXPECT_TRUE(contains(result.err, "no version of this kernel works"));
}

TEST_F(SelfTest, AnotherRanksDeviceIsNamed) {
    if (!built_with_mpi() || !program_succeeds({"mpirun", "--version"})) GTEST_SKIP() << "no MPI";
    imitate(fault("wrong", "matmul4_fp32"));
    Words command = words_of(
        "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to "
        "none");
    for (const char* where : {"cpu", "0"}) {
        const Words rank = {"-np", "1",  program, "-i", data.train, "-e",       tiny, "-b",
                            "2",   "-t", "17",    "-x", "2",        "--device", where};
        if (where == std::string("0")) command.push_back(":");
        command.insert(command.end(), rank.begin(), rank.end());
    }
    const std::string out = expect_run(command).out;
    EXPECT_TRUE(contains(out, "note: rank 1 (device 0): matmul4/fp32/tile:16x64 is not used on llvmpipe"));
}

// Also of candidates that are timed, and of samples.
TEST_F(SelfTest, OneProcessChecksWhatARunTakes) {
    std::string text;
    for (int i = 0; text.size() < 200000; i++) text += "sentence " + std::to_string(i) + " of the text.\n";
    write_whole_file(data / "text", {text});
    imitate("");
    const std::string out = expect_run(args(program, "--text", data / "text", "-o", data / "run",
                                            "--minutes 0.05 -b 2 -t 16 --sample-tokens 3 --device 0"))
                                .out;
    const std::string line = "versions of kernels before their first use in ";
    EXPECT_TRUE(contains(out, line));
    EXPECT_TRUE(contains(out, "measured: 4 layers of "));
    EXPECT_TRUE(contains(out, "generating:"));
    EXPECT_EQ(out.find(line), out.rfind(line)) << out;
}

// One that is killed has stored what it found.
TEST_F(SelfTest, AnInterruptedOneKeepsItsResults) {
    imitate("");
    run_program({program, "--self-test", "--device", "0"}, {SIGKILL, "attention_forward"});
    const std::string list = expect_run({program, "--list-devices"}).out;
    EXPECT_TRUE(contains(list, " kernel versions right, 0 wrong"));
}

// In whatever types and configs it was checked, a version counts once.
TEST(CheckedVersions, CountOnce) {
    const std::map<std::string, bool> checks = {{"a1/fp32/tile:64", true},
                                                {"a1/fp32/tile:128", false},
                                                {"a1/bf16/tile:64", true},
                                                {"b2/fp16/default", true},
                                                {"c1", false},
                                                {MATRIX_TRIAL, false}};
    EXPECT_EQ(checked_versions(checks), (std::set<std::string>{"a1", "b2", "c1"}));
    EXPECT_EQ(checked_versions(checks, true), (std::set<std::string>{"a1", "c1"}));
}

TEST_F(SelfTest, ALayerWithoutARightVersionEndsTheRun) {
    const std::string link = data / "trainer";  // has another name, and is tested like the program
    std::filesystem::create_symlink(program, link);
    const Words train = {"-i", data.train, "-e", tiny, "-b", "3", "-t", "17"};
    const std::vector<std::pair<std::string, Words>> commands = {
        {"gelu_forward2", with({program}, train)},
        {"gelu_forward2", with({link}, train)},
        {"sample_token1",
         {BINARY_DIR "/generate", "-e",
          "custom:layers=1,heads=2,channels=24,max_seq_len=32,"
          "vocab=257",
          "-n", "4", "text"}}};
    for (const auto& [kernel, command] : commands) {
        imitate(fault("wrong", kernel + "_fp32"));
        std::filesystem::remove_all(environment("XDG_CACHE_HOME"));
        const ProgramResult result = run_program(with(command, {"--device", "0"}));
        const std::string layer = kernel.substr(0, kernel.size() - 1);
        EXPECT_EQ(result.status, 1);
        EXPECT_TRUE(contains(result.err, layer + ": no version of this kernel works on llvmpipe"));
        EXPECT_TRUE(contains(result.out + result.err, kernel + "/fp32/block:"));
    }
}

TEST_F(SelfTest, MatricesOfUntrustedDriversAreTriedByAChild) {
    setenv("LAUNCHPAD_CHECK_SECONDS", "20", 1);
    for (const auto& [words, found] :
         {std::pair("untrusted", "has no fragment shape that the kernels know"),
          {"untrusted matrices_crash", "not used: the driver failed with them"},
          {"untrusted matrices_hang", "not used: the driver failed with them"}}) {
        imitate(words);
        const std::string before = expect_run({program, "--list-devices"}).out;
        EXPECT_TRUE(contains(before, "fp16 none (not tried yet"));
        for (int start = 0; start < 2; start++) {
            const std::string result = output_of(data.run({"-x", "1", "--device", "0", "--dry-run=memory"}));
            const bool notes = result.find("note: cooperative matrices are not used on") != std::string::npos;
            EXPECT_EQ(notes, start == 0 && found[0] == 'n') << result;
        }
        const std::string after = expect_run({program, "--list-devices"}).out;
        EXPECT_TRUE(contains(after, std::string("fp16 none (") + found));
    }
    unsetenv("LAUNCHPAD_CHECK_SECONDS");
}

// Somebody else, such as a system without memory, ends the process that checks: nothing is known, or stored.
TEST_F(SelfTest, WhatOthersEndIsNoVerdict) {
    const auto listed = [&] { return expect_run({program, "--list-devices"}).out; };
    const auto first_start = [&] {
        return expect_run(args(program, "-e", tiny, "-i", data.train, "-x 1 -b 2 -t 16 -s 0 -v 0 --device 0"))
            .out;
    };
    imitate(fault("ends", "matmul4_fp32"));
    const std::string out = first_start();
    EXPECT_TRUE(
        contains(out, "note: the kernels could not be checked: the process that checks them was ended"));
    EXPECT_FALSE(contains(out, "is not used"));
    EXPECT_FALSE(contains(listed(), " wrong: "));
    imitate(fault("short", "matmul4_fp32"));
    EXPECT_FALSE(contains(first_start(), "is not used"));
    EXPECT_FALSE(contains(listed(), " wrong: "));
    imitate("untrusted matrices_end");
    EXPECT_FALSE(contains(first_start(), "cooperative matrices are not used"));
    EXPECT_TRUE(contains(listed(), "fp16 none (not tried yet"));
}

// CUDA, ROCm and oneAPI would show fewer of several GPUs than Vulkan does.
TEST_F(OtherDevices, VariablesThatHideNothingAreNoted) {
    const Words plan = {program, "-e", tiny, "-i", data.train, "-t", "16", "-s", "0", "--dry-run=memory"};
    const auto noted = [&](const std::string& name, Words command) {
        command.insert(command.begin(), {"env", name + "=0"});
        return expect_run(command).out.find("note: " + name + " has no effect on Vulkan: choose a GPU") !=
               std::string::npos;
    };
    for (const char* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                             "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"}) {
        imitate("twins");
        EXPECT_TRUE(noted(name, plan)) << name;
        EXPECT_TRUE(noted(name, with(plan, {"--device", "gpu"}))) << name;
        EXPECT_FALSE(noted(name, with(plan, {"--device", "1"}))) << name;
        EXPECT_FALSE(noted(name, with(plan, {"--device", "cpu"}))) << name;
        imitate("");
        EXPECT_FALSE(noted(name, plan)) << name;
    }
    imitate("pci:3");  // one GPU
    EXPECT_FALSE(noted("CUDA_VISIBLE_DEVICES", plan));
    for (const char* none : {"CUDA_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=-1"})
        EXPECT_TRUE(contains(expect_run(with({"env", none}, plan)).out, "on Vulkan: --device cpu takes"));
    imitate("twins");
    EXPECT_FALSE(noted("MESA_VK_DEVICE_SELECT", plan));
    if (run_program({"env", "mpirun", "--version"}).status != 0 || !built_with_mpi())
        GTEST_SKIP() << "no mpirun, or a build without MPI";
    const Words job = {"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2"};
    EXPECT_TRUE(noted("CUDA_VISIBLE_DEVICES", with(job, plan)));
}

// srun --gpus-per-task=1: each process sees one GPU, as device 0.
TEST_F(OtherDevices, ProcessesOfAMachineTakeTheOneGpuThatEachSees) {
    if (run_program({"env", "mpirun", "--version"}).status != 0 || !built_with_mpi())
        GTEST_SKIP() << "no mpirun, or a build without MPI";
    const auto plan = [&](const std::string& second_bus) {
        Words job = {"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"};
        for (const std::string& bus : {std::string("3"), second_bus}) {
            if (job.back() != "none") job.push_back(":");
            job = with(job, {"-np", "1", "env", "VULKAN_DEVICE=pci:" + bus, program, "-e", tiny, "-i",
                             data.train, "-t", "16", "-s", "0", "--dry-run=memory"});
        }
        return run_program(job);
    };
    imitate("pci:3");
    const ProgramResult taken = plan("4");
    expect_ok(taken, "processes: 2", "batch: 1 x 8 x 16 ");  // equal devices
    EXPECT_EQ(taken.out.find("device: CPU"), std::string::npos) << taken.out;
    const ProgramResult same = plan("3");
    EXPECT_NE(same.status, 0);
    EXPECT_TRUE(contains(same.err,
                         "--device auto: 2 processes on a machine with 1 GPU: start one process per "
                         "GPU, or name the device that all of them use with --device, such as "
                         "--device 0"));
}

// All that can be divided is.
TEST_F(OtherDevices, DividedCommandsOfOnePipelineKeepTheirBits) {
    for (const char* precision : {"fp32", "bf16"}) {
        SCOPED_TRACE(precision);
        const Words options = {"--precision", precision, "-x", "3", "-n", "3"};
        imitate("");
        const std::vector<double> losses = train("0", options, "whole");
        ASSERT_EQ(losses.size(), 3u);
        imitate("onebase");
        setenv("LAUNCHPAD_SUBMISSION_MS", "0.01", 1);
        EXPECT_EQ(train("0", options, "divided"), losses);
        unsetenv("LAUNCHPAD_SUBMISSION_MS");
        expect_bit_identical(data / "whole", data / "divided", 3);
        std::filesystem::remove_all(data / "whole");
        std::filesystem::remove_all(data / "divided");
    }
}

// Sizes of subgroups that lavapipe does not have are those that it is asked for and ignores.
TEST_F(OtherDevices, SmallDevicesTrainAsTheCpu) {
    const std::vector<double> cpu = train("cpu", {"-x", "3"}, "cpu");
    ASSERT_EQ(cpu.size(), 3u);
    for (const char* words : {"shared:24 pushes:128 no16bit", "shared:32 no16bit allocations:2",
                              "shared:32 ignores:32:32", "ignores:64:64"}) {
        imitate(words);
        expect_losses(train("0", {"-x", "3"}, words), cpu, words);
    }
    const std::string large = "custom:layers=1,heads=2,channels=128,max_seq_len=32,vocab=50257";
    for (const auto& [words, line] : {std::pair("allocations:2", "allows at most 2.0 MiB"),
                                      {"shared:16", "it lacks 24 KiB of shared memory"}}) {
        imitate(words);
        EXPECT_TRUE(contains(data.run({"--device", "0", "-e", large}).err, line));
    }
}

// Mesa 22.3 compiles attention for minutes then.
TEST_F(OtherDevices, WithoutInt64TrainsAsTheCpu) {
    if (!std::filesystem::exists(with_newer_mesa)) GTEST_SKIP() << "run dev/setup.sh newer-mesa";
    const std::vector<double> cpu = train("cpu", {"-x", "3", "--optimizer", "muon"}, "cpu");
    imitate("noint64");
    const std::string list = expect_run({with_newer_mesa, program, "--list-devices"}).out;
    EXPECT_NE(list.find("lacks 64-bit integers"), std::string::npos) << list;
    const std::string usual = "-b 3 -t 17 -x 3 -s 0 --optimizer muon --device 0 -e " + std::string(tiny);
    const std::vector<std::string> files = {"-i", data.train, "-j", data.val, "-o", data / "gpu"};
    expect_run(with({with_newer_mesa, program}, with(files, words_of(usual))));
    expect_losses(data.losses(data / "gpu"), cpu, "noint64");
}

TEST_F(OtherDevices, SubgroupsOfUnknownSizeTrainAsTheCpu) {
    const std::vector<double> cpu = train("cpu", {"-x", "10"}, "cpu");
    ASSERT_EQ(cpu.size(), 10u);
    for (const char* words : {"subgroups:4:8:8", "subgroups:4:8:4"}) {
        set_vector_bits(std::string(words) == "subgroups:4:8:8" ? "128" : "256");
        imitate(words);
        expect_losses(train("0", {"-x", "10"}, words), cpu, words);
        const std::string list = expect_run({program, "--list-devices"}).out;
        EXPECT_TRUE(contains(list, "subgroups of 4 to 8 (the driver chooses)"));
    }
}
