// Positions that were never trained are never used, by any program.
#include <gtest/gtest.h>

#include <filesystem>

#include "llmc/base/json.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/model_file.h"
#include "tests/tiny_run.h"

struct Positions : ::testing::Test {
    Data data;
    const std::string shape = "custom:layers=1,heads=2,channels=16,vocab=67",
                      larger = shape + ",max_seq_len=40";

    std::string in(const std::string& name) const { return data / name; }
    ProgramResult train(const Words& options) const {
        const ProgramResult run = run_program(with(
            {program, "--device", "cpu", "-i", data.train, "-j", data.val, "-b", "2", "-s", "0"}, options));
        EXPECT_EQ(run.status, 0) << run.err;
        return run;
    }
    static int recorded(const std::string& folder, int step) {
        return parse_json_object(read_run(folder, step), "run").at("positions");
    }
    ProgramResult use(const char* name, const std::string& model, const Words& options) const {
        return run_program(
            with({BINARY_DIR "/" + std::string(name), "--device", "cpu", "-e", model}, options));
    }
    ProgramResult eval(const std::string& model, const Words& options = {}) const {
        return use("eval", model, with({"-i", data.val}, options));
    }
};

TEST_F(Positions, ANewModelHasThoseOfItsSequences) {
    train({"-e", shape, "-t", "24", "-x", "2", "-o", in("free")});
    EXPECT_EQ(read_model_file_header(model_path(in("free"), 2)).max_seq_len, 24);
    train({"-e", larger, "-t", "24", "-x", "2", "-o", in("given")});
    EXPECT_EQ(read_model_file_header(model_path(in("given"), 2)).max_seq_len, 40);
    write_tokens(data.val, 3000, 67);
    const ProgramResult more = train({"-e", "d6", "-t", "1100", "-x", "1", "--dry-run=memory"});
    EXPECT_EQ(more.status, 0) << more.err;                                     // more than GPT-2's
    train({"-e", shape, "-t", "20", "-x", "4", "-y", "1", "-o", in("free")});  // of the run
    EXPECT_EQ(read_model_file_header(model_path(in("free"), 4)).max_seq_len, 24);
}

TEST_F(Positions, NoProgramUsesTheOthers) {
    train({"-e", larger, "-t", "24", "-x", "2", "-o", in("run")});
    const ProgramResult all = eval(in("run"));
    ASSERT_EQ(all.status, 0) << all.err;
    EXPECT_EQ(all.out, eval(in("run"), {"-t", "24"}).out);
    EXPECT_EQ(all.out, eval(model_path(in("run"), 2)).out);
    expect_refusal(eval(in("run"), {"-t", "25"}), "trained with at most 24 tokens");

    const ProgramResult hf = run_program("train_gpt2 -e", in("run"), "--export hf", in("hf"));
    ASSERT_EQ(hf.status, 0) << hf.err;
    EXPECT_EQ(read_model_file_header(in("hf/model.safetensors")).max_seq_len, 24);
    EXPECT_TRUE(contains(read_whole_file(in("hf/config.json")), "\"n_positions\": 24"));
    const ProgramResult exported = eval(in("hf"));
    EXPECT_EQ(exported.out, all.out) << exported.err;

    std::filesystem::create_directories(in("alone"));
    std::filesystem::copy_file(model_path(in("run"), 2), in("alone/m.bin"));
    EXPECT_NE(eval(in("alone/m.bin")).out, all.out);  // a file of llm.c: all are trained
    EXPECT_EQ(eval(in("alone/m.bin"), {"-t", "24"}).out, all.out);
}

TEST_F(Positions, TextsStayBelowThem) {
    train(args("-e custom:layers=1,heads=2,channels=16,vocab=257,max_seq_len=40 -t 8 -x 2 -o", in("run")));
    run_program("train_gpt2 -e", in("run"), "--export hf", in("hf"));
    const Words much = {"-n", "60", "--temperature", "0", "--tokenizer", "bytes", "abc"};
    const std::string text = output_of(use("generate", in("run"), much));
    EXPECT_EQ(text, use("generate", in("hf"), much).out);
}

TEST_F(Positions, LongerSequencesExtendThemShorterOnesDoNotShrinkThem) {
    const auto from = [&](const std::string& model, const char* t, const std::string& to) {
        train({"-e", model, "-t", t, "-x", "1", "-o", in(to)});
        return recorded(in(to), 1);
    };
    EXPECT_EQ(from(larger, "24", "run"), 24);
    EXPECT_EQ(from(in("run"), "16", "shorter"), 24);
    EXPECT_EQ(from(in("run"), "32", "longer"), 32);
    train({"-y", "1", "-e", larger, "-t", "30", "-x", "2", "-o", in("run")});
    EXPECT_EQ(recorded(in("run"), 2), 30);
    train({"-y", "1", "-e", larger, "-t", "10", "-x", "3", "-o", in("run")});
    EXPECT_EQ(recorded(in("run"), 3), 30);
    std::filesystem::copy_file(model_path(in("run"), 1), in("llmc.bin"));
    EXPECT_EQ(from(in("llmc.bin"), "16", "tuned"), 40);
}
