// Messages of errors: one line, without anything that a terminal would interpret.
#include "llmc/base/error.h"
#include "llmc/base/os.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <system_error>

#include "tests/message_of.h"
#include "tests/run_program.h"

TEST(Error, EscapesWhatATerminalInterprets) {
    EXPECT_EQ(printable("plain text, 'quoted' 100%"), "plain text, 'quoted' 100%");
    EXPECT_EQ(printable("\x1b[2J\x1b]0;title\x07"), "\\x1b[2J\\x1b]0;title\\x07");
    EXPECT_EQ(printable("two\nlines\r\tand\x7f"), "two\\nlines\\x0d\\x09and\\x7f");
    EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
    EXPECT_EQ(printable("größe, 模型, 🙂"), "größe, 模型, 🙂");
    EXPECT_EQ(printable("\xc2\x9b"
                        "31m"),
              "\\xc2\\x9b31m");  // CSI as one character
    EXPECT_EQ(printable("a\xe2\x80\xae"
                        "b\xe2\x81\xa6"),
              "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6");            // right to left
    EXPECT_EQ(printable("\xe2\x80\xa8"), "\\xe2\\x80\\xa8");  // line separator
}

TEST(Error, EscapesBytesThatAreNotUtf8) {
    EXPECT_EQ(printable("a\xff\x80z"), "a\\xff\\x80z");
    EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");                    // ESC in too many bytes
    EXPECT_EQ(printable("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");           // likewise
    EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
    EXPECT_EQ(printable("\xed\xbf\xbf"), "\\xed\\xbf\\xbf");           // the last one
    EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // past the last character
    EXPECT_EQ(printable("cut \xe6\xa8"), "cut \\xe6\\xa8");
}

// What a shell reads again is the path.
TEST(Error, WordsOfAShell) {
    EXPECT_EQ(shell_word("runs/my-text_1.2"), "runs/my-text_1.2");
    for (const std::string path :
         {"my run", "it's", "q\"$(touch pwned)", "st*r?", "glob[1]", "a;b", "", "~x", "a\\b"}) {
        const ProgramResult shell = run_program({"sh", "-c", "printf %s " + shell_word(path)});
        EXPECT_EQ(shell.out, path);
    }
    for (const std::string path : {"a\tb", "caf\xe9", "'\x1b[31m", "\xc2\x85 9"}) {
        const std::string word = shell_word(path);
        EXPECT_EQ(printable(word), word);
        EXPECT_EQ(run_program({"bash", "-c", "printf %s " + word}).out, path);
    }
}

TEST(Error, MessagesArePrintable) {
    EXPECT_EQ(message_of([] { fail("tensor '%s' of %s", "\x1b[31mred", "a\nb"); }),
              "tensor '\\x1b[31mred' of a\\nb");
}

TEST(Error, ExceptionsOfTheLibraryBecomeSentences) {
    EXPECT_TRUE(contains(message_for(std::bad_alloc()), "out of memory"));
    EXPECT_TRUE(contains(message_for(std::length_error("vector")), "out of memory"));
    const std::system_error no_thread(std::make_error_code(std::errc::resource_unavailable_try_again));
    EXPECT_TRUE(contains(message_for(no_thread), "OMP_NUM_THREADS"));
    EXPECT_EQ(message_for(std::runtime_error("broken\x1b")), "broken\\x1b");
    const std::error_code too_long = std::make_error_code(std::errc::filename_too_long);
    EXPECT_EQ(message_for(std::filesystem::filesystem_error("status", "a\x1b", too_long)),
              "cannot use a\\x1b: " + too_long.message());
    EXPECT_EQ(message_for(std::filesystem::filesystem_error("current path", too_long)),
              "cannot find the current folder: " + too_long.message());
    EXPECT_EQ(message_for(Error("plain")), "plain");
}
