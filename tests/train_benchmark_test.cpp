// The program that measures training: results of each case, skipped cases and error messages.
#include <array>

#include "tests/report_program.h"

static const std::string tiny = "custom:layers=1,heads=1,channels=32,max_seq_len=32,vocab=100";

TEST(TrainBenchmark, MeasuresEachCase) {
    for (const std::string& device : report_devices()) {
        std::vector<std::string> options = {"--model",   tiny,          "--batch",
                                            "2x16,1x32", "--precision", "fp32,bf16"};
        if (device != "cpu") options = {"--model", tiny, "--batch", "2x16", "--precision", "fp32"};
        const ReportFile file = run_report("train_benchmark", device, options);
        ASSERT_EQ(file.printed.status, 0);
        const Table& table = file.table("training");
        ASSERT_EQ(table.rows.size(), device == "cpu" ? 4u : 1u);
        for (const char* column : {"rate", "step", "MFU", "memory", "loss"}) expect_positive(table, column);
        EXPECT_EQ(cell_of(table, 0, "model").text(), "0.018M (1 layer, 32 channels)");
        EXPECT_EQ(cell_of(table, 0, "batch").text(), "2x16");
        for (size_t row = 0; row < table.rows.size(); row++) {
            EXPECT_NEAR(cell_of(table, row, "loss").number(), std::log(100), 0.5);  // barely trained
            const double seconds = 1e-3 * cell_of(table, row, "step").number();
            EXPECT_NEAR(cell_of(table, row, "rate").number() * seconds, 32, 1e-6);
            EXPECT_EQ(cell_of(table, row, "power").is_null(), cell_of(table, row, "power source").is_null());
        }
    }
}

// A page names one peak for each quantity: the one that `peak` measured.
TEST(TrainBenchmark, RefersToThePeaksOfTheReport) {
    TemporaryFolder folder;
    write_peaks(folder / "peak.json");
    const ReportFile file = run_report(
        "train_benchmark", "cpu",
        {"--model", tiny, "--batch", "1x8", "--precision", "fp32,bf16", "--peaks", folder / "peak.json"});
    ASSERT_EQ(file.printed.status, 0);
    const std::string& note = file.table("training").note;
    EXPECT_NE(note.find("bf16 246 TFLOP/s, fp32 123 TFLOP/s"), std::string::npos) << note;
}

TEST(TrainBenchmark, DescriptorsWithCommas) {
    const std::string other = "custom:layers=2,heads=2,channels=32,max_seq_len=16,vocab=50";
    const ReportFile file = run_report(
        "train_benchmark", "cpu", {"--model", tiny + "," + other, "--batch", "1x8", "--precision", "fp16"});
    ASSERT_EQ(file.printed.status, 0);
    const Table& table = file.table("training");
    ASSERT_EQ(table.rows.size(), 2u);
    EXPECT_EQ(cell_of(table, 0, "model").text(), "0.018M (1 layer, 32 channels)");
    EXPECT_EQ(cell_of(table, 1, "model").text(), "0.03M (2 layers, 32 channels)");
}

// Cases that do not fit into memory are named in the note; the others are measured.
TEST(TrainBenchmark, SkipsCasesThatDoNotFit) {
    const ReportFile file = run_report(
        "train_benchmark", "cpu", {"--model", tiny, "--batch", "1x8,16000000x32", "--precision", "fp32"});
    ASSERT_EQ(file.printed.status, 0);
    const Table& table = file.table("training");
    EXPECT_EQ(table.rows.size(), 1u);
    EXPECT_NE(table.note.find("batch 16000000x32, fp32 was skipped: it needs "), std::string::npos)
        << table.note;
}

TEST(TrainBenchmark, RejectsInvalidOptions) {
    for (const auto& [option, value, word] : {std::array{"--batch", "4", "4x64"},
                                              {"--batch", "4x64x2", "4x64"},
                                              {"--batch", "0x64", "4x64"},
                                              {"--batch", "4294967300x4", "4x64"},
                                              {"--batch", "4x4294967300", "4x64"},
                                              {"--batch", "1x64", "at most"},
                                              {"--model", "d", "d"},
                                              {"--precision", "fp8", "fp8"}}) {
        const ProgramResult result =
            run_program({BINARY_DIR "/train_benchmark", "--device", "cpu", "--model", tiny, option, value});
        EXPECT_EQ(result.status, 1) << option << " " << value;
        EXPECT_NE(result.err.find(word), std::string::npos) << result.err;
        EXPECT_EQ(count_lines(result.err), 1) << result.err;
    }
}
