#include "llmc/run/run_state.h"

#include <cmath>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/files/checkpoint.h"

StepJudge::Verdict StepJudge::judge(float loss, float norm, float factor) {
    Verdict v;
    v.loss_z = losses.z_score(loss);
    v.norm_z = norms.z_score(norm);
    v.not_finite = factor == 0 || !std::isfinite(loss) || !std::isfinite(norm);
    if (!v.not_finite) {
        const bool high_loss = losses.add(loss, loss_limit), high_norm = norms.add(norm, norm_limit);
        v.outlier = high_loss || high_norm;
    }
    not_finite_in_a_row = v.not_finite ? not_finite_in_a_row + 1 : 0;
    finite_in_a_row = v.not_finite ? 0 : finite_in_a_row + 1;
    not_finite += v.not_finite;
    outliers += v.outlier;
    return v;
}

bool Validations::add(int step, double loss, bool may_be_best) {
    last_step = step;
    last_loss = loss;
    const bool is_best = may_be_best && std::isfinite(loss) && (best_step < 0 || loss < best_loss);
    if (is_best) {
        best_step = step;
        best_loss = loss;
    }
    since_best = is_best || !may_be_best ? 0 : since_best + 1;
    return is_best;
}

static nlohmann::json division_to_json(const Division& division) {
    nlohmann::json shares = nlohmann::json::array();
    for (const auto& [device, sequences, micro_batch] : division)
        shares.push_back({{"device", device}, {"sequences", sequences}, {"micro_batch", micro_batch}});
    return shares;
}

// JSON has no NaN or infinity: a number that is not finite becomes null.
static nlohmann::json number_or_null(double x) {
    return std::isfinite(x) ? nlohmann::json(x) : nlohmann::json();
}

static nlohmann::json validations_to_json(const Validations& v) {
    return {{"last", {{"step", v.last_step}, {"loss", number_or_null(v.last_loss)}}},
            {"best", {{"step", v.best_step}, {"loss", v.best_loss}}},
            {"since_best", v.since_best},
            {"data", v.data}};
}

static nlohmann::json scaling_to_json(const LossScaling& s) {
    nlohmann::json ended = nlohmann::json::array();
    for (const auto& [step, norm] : s.ended) ended.push_back({step, number_or_null(norm)});
    return {{"factor", s.factor}, {"since", s.since}, {"good_steps", s.good_steps}, {"ended", ended}};
}

// An integer that fits Integer. The library converts other numbers without a check.
template <class Integer>
static Integer integer(const nlohmann::json& j) {
    if (j.is_number_unsigned() && std::in_range<Integer>(j.get<uint64_t>()))
        return Integer(j.get<uint64_t>());
    if (j.is_number_integer() && !j.is_number_unsigned() && std::in_range<Integer>(j.get<int64_t>()))
        return Integer(j.get<int64_t>());
    fail("%s where an integer is expected", describe_json(j).c_str());
}

static LossScaling scaling_from_json(const nlohmann::json& j) {
    LossScaling s;
    s.factor = j.at("factor");
    s.since = integer<int>(j.at("since"));
    s.good_steps = integer<int>(j.at("good_steps"));
    for (const nlohmann::json& e : j.at("ended"))
        s.add(integer<int>(e.at(0)), e.at(1).is_null() ? std::nanf("") : e.at(1).get<float>());
    if (!(s.factor >= 1 && s.factor <= LossScaling::most)) fail("loss scaling by %g", double(s.factor));
    return s;
}

static double finite_number(const nlohmann::json& j) {
    const double x = j.get<double>();
    if (!std::isfinite(x)) fail("a loss that is not finite");
    return x;
}

static Validations validations_from_json(const nlohmann::json& j) {
    const nlohmann::json &last = j.at("last"), &best = j.at("best");
    return {.last_step = integer<int>(last.at("step")),
            .best_step = integer<int>(best.at("step")),
            .last_loss = last.at("loss").is_null() ? std::nan("") : finite_number(last.at("loss")),
            .best_loss = finite_number(best.at("loss")),
            .since_best = integer<int>(j.at("since_best")),
            .data = j.at("data")};
}

static Division division_from_json(const nlohmann::json& shares) {
    Division division;
    for (const nlohmann::json& share : shares) {
        division.push_back(
            {share.at("device"), integer<int>(share.at("sequences")), integer<int>(share.at("micro_batch"))});
        const auto& [device, sequences, micro_batch] = division.back();
        if (sequences < 0 || micro_batch < (sequences ? 1 : 0))
            fail("a process with %d sequences in micro-batches of %d", sequences, micro_batch);
    }
    return division;
}

static const std::pair<WrittenFor, const char*> reasons[] = {
    {WrittenFor::schedule, "schedule"}, {WrittenFor::best, "best"}, {WrittenFor::signal, "signal"}};

static WrittenFor reason_from_json(const nlohmann::json& j) {
    const std::string text = j;
    for (const auto& [reason, name] : reasons)
        if (text == name) return reason;
    fail("it was written for '%s'", printable(text).c_str());
}

// One line of the options per element. The folder is left out, since a run's folder may be moved; so are
// values that JSON cannot hold.
static nlohmann::json options_to_json(const std::string& options) {
    nlohmann::json lines = nlohmann::json::array();
    for (const std::string& line : lines_of(options))
        if (!line.empty() && !line.starts_with("output=") && printable(line) == line) lines.push_back(line);
    return lines;
}

std::string run_state_to_json(const RunState& state) {
    nlohmann::json shards = nlohmann::json::array();
    for (const SavedShard& shard : state.shards)
        shards.push_back({{"name", shard.name}, {"tokens", shard.tokens}, {"xxh3", shard.checksum}});
    const StepJudge& judge = state.judge;
    nlohmann::json j = {{"precision", state.precision},
                        {"seed", state.seed},
                        {"shards", shards},
                        {"chunk_tokens", state.chunk_tokens},
                        {"token_in_sample", state.token_in_sample},
                        {"first_token", state.first_token},
                        {"coin_state", state.coin_state},
                        {"options", options_to_json(state.options)},
                        {"positions", state.positions},
                        {"max_steps", state.max_steps},
                        {"loss_scaling", scaling_to_json(state.scaling)},
                        {"losses", judge.losses.values},
                        {"norms", judge.norms.values},
                        {"not_finite", judge.not_finite},
                        {"outliers", judge.outliers},
                        {"not_finite_in_a_row", judge.not_finite_in_a_row},
                        {"finite_in_a_row", judge.finite_in_a_row},
                        {"healthy_checkpoint", state.healthy_checkpoint},
                        {"validations", validations_to_json(state.validations)},
                        {"written_for", reasons[size_t(state.written_for)].second}};
    if (!state.tokenizer.empty()) j["tokenizer"] = parse_json_object(state.tokenizer, "the tokenizer");
    if (state.tokens) j["tokens"] = *state.tokens;
    if (!state.division.empty()) j["division"] = division_to_json(state.division);
    if (const SavedMixture& mixture = state.mixture; !mixture.shares.empty())
        j["mixture"] = {{"shares", mixture.shares}, {"sequences", mixture.sequences}};
    return json_text(j);
}

static std::vector<double> window_from_json(const nlohmann::json& j) {
    const std::vector<double> values = j;
    if (values.size() > OutlierDetector::window) fail("a window of %zu values", values.size());
    return values;
}

RunState run_state_from_json(const std::string& text, const std::string& path) {
    try {
        const nlohmann::json j = parse_json_object(text, "it");
        RunState state;
        state.precision = j.at("precision");
        state.seed = integer<uint64_t>(j.at("seed"));
        for (const nlohmann::json& shard : j.at("shards"))
            state.shards.push_back(
                {shard.at("name"), integer<uint64_t>(shard.at("tokens")), shard.at("xxh3")});
        state.chunk_tokens = integer<uint64_t>(j.at("chunk_tokens"));
        state.token_in_sample = integer<uint64_t>(j.at("token_in_sample"));
        if (j.contains("first_token")) state.first_token = integer<uint64_t>(j["first_token"]);
        state.coin_state = integer<uint64_t>(j.at("coin_state"));
        for (const nlohmann::json& line : j.at("options")) state.options += line.get<std::string>() + "\n";
        if (j.contains("positions")) state.positions = integer<int>(j["positions"]);
        if (state.positions < 0) fail("%d positions", state.positions);
        if (j.contains("max_steps")) state.max_steps = integer<int>(j["max_steps"]);
        state.scaling = scaling_from_json(j.at("loss_scaling"));
        state.judge.losses.values = window_from_json(j.at("losses"));
        state.judge.norms.values = window_from_json(j.at("norms"));
        state.judge.not_finite = integer<int>(j.at("not_finite"));
        state.judge.outliers = integer<int>(j.at("outliers"));
        state.judge.not_finite_in_a_row = integer<int>(j.at("not_finite_in_a_row"));
        state.judge.finite_in_a_row = integer<int>(j.at("finite_in_a_row"));
        state.healthy_checkpoint = integer<int>(j.at("healthy_checkpoint"));
        if (j.contains("tokenizer")) {
            if (!j["tokenizer"].is_object())
                fail("the tokenizer is %s", describe_json(j["tokenizer"]).c_str());
            state.tokenizer = json_text(j["tokenizer"]);
        }
        if (j.contains("mixture"))
            state.mixture = {j["mixture"].at("shares"), integer<uint64_t>(j["mixture"].at("sequences"))};
        if (j.contains("division")) state.division = division_from_json(j["division"]);
        if (j.contains("tokens")) state.tokens = integer<uint64_t>(j["tokens"]);
        state.validations = validations_from_json(j.at("validations"));
        state.written_for = reason_from_json(j.at("written_for"));
        return state;
    } catch (const nlohmann::json::exception& error) {
        fail("%s was not written by this program: %s", path.c_str(), json_reason(error).c_str());
    } catch (const Error& error) {
        fail("%s was not written by this program: %s", path.c_str(), error.what());
    }
}

ExtraCheckpoints find_extra_checkpoints(const std::string& folder) {
    ExtraCheckpoints extra;
    for (int step : list_checkpoints(folder)) try {
            if (!file_exists(run_path(folder, step))) continue;  // llm.c's have none
            const RunState state = run_state_from_json(read_run(folder, step), run_path(folder, step));
            if (state.written_for != WrittenFor::schedule) extra[step] = state.written_for;
        } catch (const Error&) {  // find_latest_checkpoint() reports what is wrong
        }
    return extra;
}
