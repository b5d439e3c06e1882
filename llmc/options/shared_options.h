// Options that train_gpt2 and smaller programs have in common, besides those of command_line.h.
#pragma once
#include "llmc/layers/sampler.h"
#include "llmc/options/option_table.h"
#include "llmc/text/text_reader.h"

void add_text_options(OptionTable& table, TextOptions& text);  // how text is read
void refuse_text_options(OptionTable& table);                  // Error if one is given
void add_sampler_options(OptionTable& table, SamplerOptions& sampler);
