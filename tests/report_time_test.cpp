// Report programs with a short time limit: they skip what does not fit, name it and succeed.
#include "tests/report_program.h"

static const char* const programs[] = {"peak", "matmul_sweep", "elementwise_sweep", "dispatch_overhead",
                                       "train_benchmark"};

static ReportPart run_for(const std::string& name, const std::string& device, const char* seconds) {
    TemporaryFolder folder;
    const std::string file = folder / "run.json";
    const ProgramResult result = run_program(
        {BINARY_DIR "/" + name, "--quick", "--device", device, "--seconds", seconds, "--json", file});
    EXPECT_EQ(result.status, 0) << name << ": " << result.err;
    EXPECT_EQ(result.err, "") << name;
    if (result.status) return {};
    const ReportPart part = read_report_part(file);
    EXPECT_EQ(result.out.find("skipped for lack of time") != std::string::npos, !part.left_out.empty())
        << name;
    return part;
}

TEST(ReportTime, NoTimeSkipsEverything) {
    for (const std::string& device : report_devices())
        for (const std::string name : programs) {
            const ReportPart part = run_for(name, device, "1e-6");
            EXPECT_GE(part.left_out.size(), 1u) << name;
            ASSERT_GE(part.tables.size(), 1u) << name;
            for (const Table& table : part.tables)
                for (const std::vector<Cell>& row : table.rows)
                    for (size_t i = 0; i < row.size(); i++)
                        EXPECT_FALSE(row[i].is_number() && table.columns[i].better != Better::neither)
                            << name << ", " << table.name;
        }
}

// The first steps are measured, the last are skipped, and each is either measured or named.
TEST(ReportTime, LittleTimeMeasuresTheFirstSteps) {
    const ReportPart all = run_for("peak", "cpu", "1000"), some = run_for("peak", "cpu", "0.5");
    const auto steps = [](const ReportPart& part) {
        size_t count = part.left_out.size();
        for (const Table& table : part.tables)
            if (table.name == "copy_by_size" || table.name == "arithmetic") count += table.rows.size();
        return count;
    };
    EXPECT_TRUE(all.left_out.empty());
    ASSERT_FALSE(some.left_out.empty());
    EXPECT_EQ(some.left_out.back(), "memory, CPU");
    EXPECT_EQ(steps(some), steps(all) + 1);  // when measured, "memory, CPU" is in another table
    EXPECT_EQ(some.tables.at(0).rows.at(0).at(1).text(), "fp32 FMA");
}
