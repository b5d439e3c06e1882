// What a release consists of: the library that other CMake projects use, and packages whose programs run
// where nothing is built. The version is that of the changelog.
#include <gtest/gtest.h>

#include <regex>

#include "tests/run_program.h"

static const std::string source = SOURCE_DIR, build = BINARY_DIR;

static bool is_sanitized() {  // a library with sanitizers does not link to other projects
    return read_text(build + "/CMakeCache.txt").find("SANITIZE:BOOL=ON") != std::string::npos;
}

static void expect_success(const std::vector<std::string>& command) {
    const ProgramResult result = run_program(command);
    ASSERT_EQ(result.status, 0) << command[0] << " " << command[1] << "\n" << result.out << result.err;
}

static bool have(const std::string& command) {
    return run_program({"sh", "-c", "command -v " + command}).status == 0;
}

static void configure_examples(const std::string& folder, const std::string& option) {
    expect_success({"cmake", "-S", source + "/examples", "-B", folder, "-G", "Ninja",
                    "-DCMAKE_BUILD_TYPE=Debug", "-DWITH_SHADERS=OFF", option});
}

TEST(Library, InstalledForOtherProjects) {
    if (is_sanitized()) GTEST_SKIP() << "built with sanitizers";
    TemporaryFolder folder;
    const std::string prefix = folder / "prefix";
    expect_success({"cmake", "--install", build, "--prefix", prefix, "--component", "library"});
    configure_examples(folder / "examples", "-DCMAKE_PREFIX_PATH=" + prefix);
    expect_success({"cmake", "--build", folder / "examples"});
    expect_success({"env", "VK_DRIVER_FILES=/none", "VK_ICD_FILENAMES=/none",
                    folder / "examples/example_train", folder / "model.bin"});
    const ProgramResult text =
        run_program({"env", "VK_DRIVER_FILES=/none", "VK_ICD_FILENAMES=/none",
                     folder / "examples/example_continue", folder / "model.bin", "the quick "});
    EXPECT_EQ(text.status, 0) << text.err;
    EXPECT_EQ(text.out.rfind("brown fox", 0), 0u) << text.out;

    const std::string page = read_text(source + "/docs/library.md");
    const std::regex header("\n\\| `(llmc/[^`]*\\.h)`");
    int count = 0;
    for (std::sregex_iterator i(page.begin(), page.end(), header), end; i != end; ++i, ++count)
        EXPECT_TRUE(std::filesystem::exists(prefix + "/include/vulkan_gpt2/" + (*i)[1].str())) << (*i)[1];
    EXPECT_GT(count, 10);
}

// Compiles an example with the options that add_subdirectory() gives it. To build the library again would
// take minutes.
TEST(Library, AsASubdirectory) {
    if (is_sanitized()) GTEST_SKIP() << "built with sanitizers";
    TemporaryFolder folder;
    configure_examples(folder.path, "-DVULKAN_GPT2_SOURCE=" + source);
    const std::string object = "CMakeFiles/example_train.dir/train.cpp.o";
    expect_success({"ninja", "-C", folder.path, object});
    EXPECT_TRUE(std::filesystem::exists(folder / object));
    const std::string targets = run_program({"ninja", "-C", folder.path, "-t", "targets", "all"}).out;
    EXPECT_NE(targets.find("libllmc.a"), std::string::npos);
    EXPECT_EQ(targets.find("package_test"), std::string::npos);
}

// Prepares data, trains and generates with the programs of an unpacked package, and nothing else in PATH.
static void use_programs(const std::string& bin, const std::string& folder) {
    std::ofstream(folder + "/text") << "To be, or not to be: that is the question.\n";
    auto run = [&](const std::string& command) {
        expect_success({"/usr/bin/env", "-i", "PATH=" + bin, "HOME=" + folder, "OMP_WAIT_POLICY=passive",
                        "/bin/sh", "-c", "cd " + folder + " && " + command});
    };
    run("vulkan-gpt2-prepare-data --val-tokens 20 --out . --name x text");
    run("vulkan-gpt2-train --device cpu -i x_train.bin -j x_val.bin -b 1 -t 8 -x 2 -s 0 -o run -n 2 "
        "-e custom:layers=1,heads=1,channels=8,max_seq_len=8,vocab=257");
    run("vulkan-gpt2-generate --device cpu --tokenizer bytes -e run/model_00000002.bin -n 5 x");
    run("vulkan-gpt2-eval --device cpu --tokenizer bytes -e run/model_00000002.bin -i x_val.bin");
    run("vulkan-gpt2-make-corpus --version");
}

TEST(Package, ProgramsRunFromBothPackages) {
    const bool debian = have("dpkg-shlibdeps") && have("file");
    TemporaryFolder folder, archive, deb;
    expect_success({"cpack", "--config", build + "/CPackConfig.cmake", "-B", folder.path, "-G",
                    debian ? "TGZ;DEB" : "TGZ"});
    expect_success(
        {"sh", "-c", "tar -xzf " + folder.path + "/*.tar.gz --strip-components 1 -C " + archive.path});
    use_programs(archive / "bin", archive.path);
    if (!debian) return;
    expect_success({"sh", "-c", "dpkg-deb -x " + folder.path + "/*.deb " + deb.path});
    use_programs(deb / "usr/bin", deb.path);
    const std::string contact =
        run_program({"sh", "-c", "dpkg-deb -f " + folder.path + "/*.deb Maintainer"}).out;
    EXPECT_NE(contact.find('@'), std::string::npos) << contact;
    EXPECT_EQ(contact.find("nobody"), std::string::npos) << contact;
    const std::string depends =
        run_program({"sh", "-c", "dpkg-deb -f " + folder.path + "/*.deb Depends"}).out;
    EXPECT_NE(depends.find("libc6"), std::string::npos) << depends;
    EXPECT_EQ(depends.find("-dev"), std::string::npos) << depends;
    EXPECT_EQ(depends.find("g++"), std::string::npos) << depends;
}

TEST(Package, VersionIsThatOfTheChangelog) {
    const std::string changelog = read_text(source + "/CHANGELOG.md");
    const size_t heading = changelog.find("\n## ");
    ASSERT_NE(heading, std::string::npos);
    const std::string version =
        changelog.substr(heading + 4, changelog.find('\n', heading + 4) - heading - 4);
    const ProgramResult result = run_program({build + "/prepare_data", "--version"});
    EXPECT_EQ(result.out.rfind("prepare_data " + version + ",", 0), 0u) << result.out << version;
}
