// The options that a resumed run takes from its folder, and those that it refuses.
#pragma once

struct Options;
struct OptionTable;

// With -y 1, takes options that neither the command line nor --config gives from the options.toml of the run
// in -o, then from its newest checkpoint. Adds notes.
// Throws Error, one line, if another text, model, tokenizer or -a is given than the run has, or if its text
// would be read otherwise: it continues its own model, with the tokens in its folder. --start-over may change
// model and -a. It is an Error if the run does not record what it began with.
void take_options_of_run(OptionTable& table, Options& o);
