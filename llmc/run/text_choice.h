// What --text chooses, for the text, the time and the devices of a job.
#pragma once
#include "llmc/distributed/communicator.h"
#include "llmc/launchpad/launchpad.h"
#include "llmc/options/train_options.h"

// Prepares the tokens of --text and chooses options: first for the expected number of tokens, so that wrong
// options are refused before anything is written, then for those that were prepared. Collective.
void prepare_and_choose(Options& o, LaunchPad* pad, Communicator& job);
