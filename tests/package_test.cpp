// What a release consists of: the library that other CMake projects use, and packages whose programs run
// where nothing is built. The version comes from the changelog.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <regex>

#include "llmc/base/file.h"
#include "tests/tiny_run.h"

static const std::string source = SOURCE_DIR, build = BINARY_DIR;

static void expect_success(const Words& command) {
    const ProgramResult result = run_program(command);
    ASSERT_EQ(result.status, 0) << command[0] << " " << command[1] << "\n" << result.out << result.err;
}

static bool have(const std::string& command) { return program_succeeds({command, "--version"}); }

static void configure_examples(const std::string& folder, const std::string& option) {
    expect_success({"cmake", "-S", source + "/examples", "-B", folder, "-G", "Ninja",
                    "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "-DWITH_SHADERS=OFF",
                    "-DUNITY=ON", option});
}

// Trains a model with one example and continues a text with the other, without a GPU.
static void use_examples(const std::string& programs, const std::string& model) {
    const Words no_gpu = {"env", "VK_DRIVER_FILES=/none", "VK_ICD_FILENAMES=/none"};
    expect_success(with(no_gpu, {programs + "/example_train", model}));
    const std::string text =
        output_of(run_program(with(no_gpu, {programs + "/example_continue", model, "the quick "})));
    EXPECT_EQ(text.rfind("brown fox", 0), 0u) << text;
}

TEST(Library, InstalledForOtherProjects) {
    TemporaryFolder folder;
    const std::string prefix = folder / "prefix";
    expect_success({"cmake", "--install", build, "--prefix", prefix, "--component", "library"});
    configure_examples(folder / "examples", "-DCMAKE_PREFIX_PATH=" + prefix);
    expect_success({"cmake", "--build", folder / "examples"});
    use_examples(folder / "examples", folder / "model.bin");
    for (const Words& wrong : {Words{folder / "examples/example_train"},
                               Words{folder / "examples/example_continue", folder / "none.bin", "x"}}) {
        const ProgramResult refused = run_program(wrong);
        EXPECT_EQ(refused.status, 1) << refused.err;
        EXPECT_FALSE(refused.err.find("usage") == std::string::npos &&
                     refused.err.find("cannot open") == std::string::npos)
            << refused.err;
    }

    const std::string page = read_whole_file(source + "/docs/library.md");
    const std::regex header("\n\\| `(llmc/[^`]*\\.h)`");
    int count = 0;
    for (std::sregex_iterator i(page.begin(), page.end(), header), end; i != end; ++i, ++count)
        EXPECT_TRUE(std::filesystem::exists(prefix + "/include/vulkan_gpt2/" + (*i)[1].str())) << (*i)[1];
    EXPECT_GT(count, 10);
}

TEST(Library, AsASubdirectory) {
    TemporaryFolder folder;
    configure_examples(folder.path, "-DVULKAN_GPT2_SOURCE=" + source);
    const std::string targets = run_program({"ninja", "-C", folder.path, "-t", "targets", "all"}).out;
    EXPECT_FALSE(contains(targets, "package_test"));
    expect_success({"ninja", "-C", folder.path, "example_train", "example_continue"});
    use_examples(folder.path, folder / "model.bin");
}

// Prepares data, trains and generates with the installed programs `bin`vulkan-gpt2-*. `in_root` is the
// command that changes to another root folder, or empty.
static void use_programs(const Words& in_root, const std::string& bin, const std::string& folder) {
    auto run = [&](const std::string& name, const Words& options) {
        Words command = {"/usr/bin/env", "-i", "HOME=" + folder, "OMP_WAIT_POLICY=passive"};
        command.insert(command.end(), in_root.begin(), in_root.end());
        command.push_back(bin + "vulkan-gpt2-" + name);
        command.insert(command.end(), options.begin(), options.end());
        expect_success(command);
    };
    const std::string data = folder + "/x", run_folder = folder + "/run";
    run("prepare-data", {"--val-tokens", "20", "--out", folder, "--name", "x", folder + "/text"});
    run("train",
        args("--device cpu -i", data + "_train.bin", "-j", data + "_val.bin", "-b 1 -t 8 -x 2 -s 0 -o",
             run_folder, "-n 2 -e custom:layers=1,heads=1,channels=8,max_seq_len=8"));
    run("generate", {"--device", "cpu", "-e", run_folder, "-n", "5", "x"});
    run("eval", {"--device", "cpu", "-e", run_folder, "-i", data + "_val.bin"});
    run("make-corpus", {"--version"});
}

static void write_text(const std::string& path) {
    std::ofstream(path) << "To be, or not to be: that is the question.\n";
}

struct Package : ::testing::Test {
    static bool debian;
    static std::unique_ptr<TemporaryFolder> made;  // both packages: their compression takes seconds

    static void SetUpTestSuite() {
        debian = have("dpkg-shlibdeps") && have("file");
        made = std::make_unique<TemporaryFolder>();
        expect_success({"cpack", "--config", build + "/CPackConfig.cmake", "-B", made->path, "-G",
                        debian ? "TGZ;DEB" : "TGZ"});
    }
    static void TearDownTestSuite() { made.reset(); }

    static void unpack_archive(const std::string& folder) {
        expect_success(
            {"sh", "-c", "tar -xzf " + made->path + "/*.tar.gz --strip-components 1 -C " + folder});
    }
    static std::string field(const std::string& name) {
        return run_program({"sh", "-c", "dpkg-deb -f " + made->path + "/*.deb " + name}).out;
    }
};
bool Package::debian = false;
std::unique_ptr<TemporaryFolder> Package::made;

TEST_F(Package, ProgramsOfTheArchiveRun) {
    TemporaryFolder archive;
    unpack_archive(archive.path);
    write_text(archive / "text");
    use_programs({}, archive / "bin/", archive.path);
}

TEST_F(Package, SaysWhatItNeedsAndWhoMadeIt) {
    if (!debian) GTEST_SKIP() << "needs Debian's dpkg-shlibdeps and file";
    const std::string contact = field("Maintainer"), depends = field("Depends");
    EXPECT_NE(contact.find('@'), std::string::npos) << contact;
    EXPECT_FALSE(contains(contact, "nobody"));
    EXPECT_TRUE(contains(depends, "libc6"));
    EXPECT_FALSE(contains(depends, "-dev"));
    EXPECT_FALSE(contains(depends, "g++"));
}

// A root folder with nothing but the packages that the .deb names: no compilers, no shell. A library that it
// does not name, or a program that calls another, fails here.
TEST_F(Package, RunsWithNothingButWhatItDependsOn) {
    if (!debian || !have("apt-cache")) GTEST_SKIP() << "needs Debian's tools";
    if (geteuid() != 0 || run_program({"/usr/sbin/chroot", "/", "true"}).status != 0)
        GTEST_SKIP() << "needs the right to chroot";
    TemporaryFolder folder;
    const std::string root = folder / "root";
    expect_success({"sh", "-c", source + "/tests/clean_root.sh " + made->path + "/*.deb " + root});
    for (const char* tool : {"cc", "gcc", "c++", "ld", "cmake", "glslang", "sh", "mpirun"})
        EXPECT_FALSE(std::filesystem::exists(root + "/usr/bin/" + tool)) << tool;
    const Words in_root = {"/usr/sbin/chroot", root};
    write_text(root + "/tmp/text");
    use_programs(in_root, "/usr/bin/", "/tmp");
    std::filesystem::create_directories(root + "/opt/vulkan-gpt2");
    unpack_archive(root + "/opt/vulkan-gpt2");
    write_text(root + "/opt/text");
    use_programs(in_root, "/opt/vulkan-gpt2/bin/", "/opt");
    // the proof that the root is bare: a library less, and nothing runs
    expect_success({"sh", "-c", "find " + root + "/usr/lib " + root + "/lib/ -name 'libgomp.so*' -delete"});
    const ProgramResult broken = run_program({"/usr/sbin/chroot", root, "/usr/bin/vulkan-gpt2-train", "-h"});
    EXPECT_EQ(broken.status, 127);
    EXPECT_TRUE(contains(broken.err, "libgomp"));
}

TEST(PackageVersion, IsThatOfTheChangelog) {
    const std::string changelog = read_whole_file(source + "/CHANGELOG.md");
    const size_t heading = changelog.find("\n## ");
    ASSERT_NE(heading, std::string::npos);
    const std::string version =
        changelog.substr(heading + 4, changelog.find('\n', heading + 4) - heading - 4);
    const ProgramResult result = run_program({build + "/prepare_data", "--version"});
    EXPECT_EQ(result.out.rfind("prepare_data " + version + ",", 0), 0u) << result.out << version;
}
