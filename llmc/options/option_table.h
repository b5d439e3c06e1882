// The options of a program as a table: a row has the option's names, meaning, limits, and the variable that
// holds its value. Command lines (arguments.h), files, --help, comparisons and notes are made from it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

// Where a value comes from. A stronger source, which is a later one here, wins.
enum class Source { built_in, chosen, run, config, command_line };

// The sources of the values of a struct, of which this is a member: the struct's copies keep them.
class Sources {
   public:
    Source of(const void* value) const;
    void set(const void* value, Source source) { by_place[place(value)] = source; }
    // Whether the user, or the run that is resumed, says the value.
    bool is_given(const auto& value) const { return of(&value) > Source::chosen; }
    // Sets a value that is not given.
    template <class T>
    void choose(T& value, const std::type_identity_t<T>& choice) {
        if (is_given(value)) return;
        value = choice;
        set(&value, Source::chosen);
    }

   private:
    ptrdiff_t place(const void* value) const { return ptrdiff_t(uintptr_t(value) - uintptr_t(this)); }
    std::map<ptrdiff_t, Source> by_place;  // only those that are not built in
};

// A variable of an enumeration whose values are 0, 1, ..., or a bool: its option has a word for each.
struct EnumValue {
    void* at;
    int (*get)(const void* at);
    void (*set)(void* at, int value);
};
// The variable of an option; monostate: its value is ignored.
using OptionValue =
    std::variant<std::monostate, int*, float*, double*, uint64_t*, std::string*, std::vector<std::string>*,
                 std::vector<int>*, std::vector<double>*, EnumValue>;

// What a text may be besides the path of a file, and where a relative path begins (train_options.cpp).
enum class PathKind { none, file, pattern, model, text, tokenizer };

struct Option {
    // Without dashes, such as "batch-size"; "FILE", without a flag: an argument by position.
    std::string name;
    std::string flag;         // without its dash, such as "b" or llm.c's "nk"
    std::string usual_names;  // what other trainers call it, each after a space
    std::string group, help;
    OptionValue value;

    // Limits of a number, and their names.
    double least = -1e300, most = 1e300;
    std::string range = "";
    std::string word_for_zero = "";                        // such as "auto"
    bool is_size = false;                                  // bytes, such as 8G; "all" is 0
    std::vector<std::string> words = {};                   // of a text or an enumeration; empty: any text
    std::string (*problem)(const std::string&) = nullptr;  // what else is wrong with a text; "": nothing

    bool is_bool = false;          // words are false and true
    std::string bare = "";         // the value of --NAME alone, a flag; "": it needs a value
    bool has_negation = false;     // --no-NAME is --NAME=false
    size_t count = 1;              // values that belong together, such as hf DIR
    bool is_long = false;          // takes all arguments up to the next option
    bool has_commas = false;       // a list, separated by commas
    std::string placeholder = "";  // of the value in --help
    bool is_required = false;
    bool needs_text = false;  // on the command line: other characters than blanks

    PathKind path = PathKind::none;
    bool has_weights = false;              // a list of paths, as weighted_path() reads them
    bool is_saved = true;                  // in options.toml; only such an option may be in a file
    bool is_compared = true;               // between the processes of a job
    bool is_fixed = false;                 // when a run is resumed
    const char* without_effect = nullptr;  // llm.c's option, accepted for this reason

    Source source = Source::built_in;

    Option& between(double from, double to);  // and the same for one limit
    Option& at_least(double from, double to = 1 << 30);
    Option& one_of(std::vector<std::string> all) { return words = std::move(all), *this; }
    Option& is(PathKind kind) { return path = kind, *this; }
    Option& weighted(PathKind kind) { return has_weights = true, is(kind); }
    Option& list() { return is_long = has_commas = true, *this; }
    Option& zero_or_one() { return bare = "", *this; }  // a bool that needs a value, as llm.c's
    Option& not_saved() { return is_saved = false, *this; }
    Option& of_process() { return is_compared = false, *this; }  // each of a job may have its own
    Option& required() { return is_required = true, *this; }
    Option& not_empty() { return needs_text = true, *this; }

    bool is_positional() const { return name[0] >= 'A' && name[0] <= 'Z'; }
    bool is_list() const;  // has any number of values
    std::string dashed() const { return (is_positional() ? "" : "--") + name; }

    // The values as texts, and as they would be given, such as "--include '*.md'".
    std::vector<std::string> texts() const;
    std::string shown() const;
    // Sets the values from texts. Error, which names the option, if one is none of its values.
    void set(const std::vector<std::string>& texts);
};

// Options that do nothing where something else is given, and why.
struct InVain {
    std::string names;  // with blanks between them
    std::string why;
    bool is_in_vain;
};

struct OptionTable {
    std::string program, description;
    Sources* sources = nullptr;  // of the struct with the values; null: not recorded
    std::vector<Option> rows = {};
    std::string group = "Options";  // of the rows that follow

    // Names are "-b,--batch-size", "--seed", or "FILE" of an argument by position; after spaces, usual names.
    template <class T>
    Option& add(const std::string& names, T& value, const std::string& help) {
        if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>) {
            const EnumValue variable = {&value,
                                        [](const void* at) { return int(*static_cast<const T*>(at)); },
                                        [](void* at, int number) { *static_cast<T*>(at) = T(number); }};
            return add_row(names, help, variable, std::is_same_v<T, bool>);
        } else {
            return add_row(names, help, &value);
        }
    }
    Option& add_row(const std::string& names, const std::string& help, OptionValue value,
                    bool is_bool = false);
    void add_without_effect(const std::string& names, const char* why);  // llm.c's; has any value

    Option* find(const std::string& name);  // by its name without dashes; null: there is none
    // Sets the values unless a stronger source has. Error if one is wrong.
    void set(Option& option, const std::vector<std::string>& texts, Source source);
    // A line for each of them that the command line gives.
    std::vector<std::string> notes_of(const std::vector<InVain>& options) const;
    // The same for options that are not among those that are `read` instead of what the program usually does.
    std::vector<std::string> notes_of_unread(const char* instead, const std::vector<std::string>& read) const;
    // " (did you mean --NAME?)" with the nearest of the names or, for a short one as -lr, " (did you mean
    // -FLAG VALUE?)"; "" if none is near.
    std::string nearest(const std::string& name, const std::string& value = "");
};
