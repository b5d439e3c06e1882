// The grammar of the corpus: see corpus.h. StoryPen writes or reads text; Teller's functions are the rules of
// the grammar.
#include "llmc/text/corpus.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/utf8.h"
#include "llmc/text/corpus_words.h"

struct Alternative {
    std::string text;
    int weight;
};

static std::vector<Alternative> joined(std::vector<Alternative> some, const std::vector<Alternative>& more) {
    some.insert(some.end(), more.begin(), more.end());
    return some;
}

// The words of a list, each with a text after it, without `but`. Later words of the list have lower weights.
static std::vector<Alternative> any_of(const Words& words, const std::string& after,
                                       const std::string& but = "") {
    std::vector<Alternative> alternatives;
    for (size_t i = 0; i < words.size(); i++)
        if (words[i] != but) alternatives.push_back({words[i] + after, int(1 + 40 / (i + 2))});
    return alternatives;
}

// Writes a random story, or parses a given one. The grammar is the same code for both.
struct StoryPen {
    std::mt19937_64* random;  // null when reading
    std::string_view source;  // the text to read
    Story story = {"", 0, 0};

    std::string_view rest() const { return source.substr(std::min(story.text.size(), source.size())); }

    [[noreturn]] void lost(const std::string& expected) const {
        fail("not a story of the grammar: byte %zu has \"%s\", expected \"%s\"", story.text.size(),
             first_characters(rest(), 20).c_str(), expected.c_str());
    }

    void say(const std::string& text) {
        if (!random && !rest().starts_with(text)) lost(text);
        story.text += text;
    }

    // Draws an alternative by weight (or, when reading, takes the one that matches), says it and returns its
    // index.
    size_t choose(const std::vector<Alternative>& alternatives) {
        int total = 0;
        for (const Alternative& alternative : alternatives) total += alternative.weight;
        size_t taken = random ? draw(alternatives, total) : recognize(alternatives);
        story.nats += std::log(double(total) / alternatives[taken].weight);
        story.choices += alternatives.size() > 1;
        story.text += alternatives[taken].text;
        return taken;
    }

    // The modulo bias is below 2^-50. std::discrete_distribution would give other results in other libraries.
    size_t draw(const std::vector<Alternative>& alternatives, int total) {
        int point = int((*random)() % uint64_t(total));
        size_t taken = 0;
        while (point >= alternatives[taken].weight) point -= alternatives[taken++].weight;
        return taken;
    }

    size_t recognize(const std::vector<Alternative>& alternatives) {
        size_t taken = 0;
        while (taken < alternatives.size() && !rest().starts_with(alternatives[taken].text)) taken++;
        if (taken == alternatives.size()) lost(alternatives[0].text);
        const std::string& text = alternatives[taken].text;
        for (size_t i = 0; i < alternatives.size(); i++)
            if (i != taken &&
                (text.starts_with(alternatives[i].text) || alternatives[i].text.starts_with(text)))
                fail("the grammar is ambiguous: \"%s\" and \"%s\" are alternatives", text.c_str(),
                     alternatives[i].text.c_str());
        return taken;
    }
};

struct Person {
    std::string name;
    bool girl;
    std::string she() const { return girl ? "she" : "he"; }
    std::string She() const { return girl ? "She" : "He"; }
    std::string her() const { return girl ? "her" : "his"; }  // her book
    std::string to_her() const { return girl ? "her" : "him"; }
};

struct Thing {
    std::string name, look;  // "ball", "a red"
    std::string full() const { return look + " " + name; }
    std::string the() const { return "the " + look.substr(look.find(' ') + 1) + " " + name; }
};

// What the next sentence is about.
enum Turn { hero_acts, companion_acts, both_act, somebody_comes, animal_comes, question, small_talk, ending };

// The state of the story, and the rules, which read and change it.
struct Teller {
    StoryPen& pen;
    Person hero = {}, companion = {};
    bool together = false, animal_came = false, asked = false;
    size_t place = 0;

    // Whether a pronoun can only mean the hero.
    bool clear() const { return !together || hero.girl != companion.girl; }
    std::string hero_again() const { return clear() ? hero.she() : hero.name; }
    std::string hero_or_her() const { return clear() ? hero.to_her() : hero.name; }

    struct Choice {
        size_t index;
        std::string word;  // the alternative without `after`, with which all end
    };
    Choice choose_of(const std::vector<Alternative>& alternatives, const std::string& after) {
        const size_t taken = pen.choose(alternatives);
        const std::string& text = alternatives[taken].text;
        return {taken, text.substr(0, text.size() - after.size())};
    }
    std::string choose_word(const Words& words, const std::string& after, const std::string& but = "") {
        return choose_of(any_of(words, after, but), after).word;
    }

    // Anybody except the hero.
    Person choose_person(const std::string& after) {
        const std::vector<Alternative> some = any_of(girls, after, hero.name);
        const Choice person = choose_of(joined(some, any_of(boys, after, hero.name)), after);
        return {person.word, person.index < some.size()};
    }

    Thing choose_thing(const std::string& after, const std::string& but = "") {
        std::string look = choose_word(looks, " ");
        return {choose_word(things, after, but), look};
    }

    // told_how: any place, written as "in the park"; otherwise a place other than the current one, written as
    // "park".
    void choose_place(bool told_how) {
        std::vector<Alternative> alternatives;
        for (size_t i = 0; i < places.size(); i++)
            if (told_how || i != place)
                alternatives.push_back(
                    {(told_how ? places[i].at : places[i].name) + ". ", int(1 + 40 / (i + 4))});
        const size_t taken = pen.choose(alternatives);
        place = taken + (!told_how && taken >= place);  // the current place is no alternative
    }

    // A number from least to most; small numbers are more likely.
    int choose_number(int least, int most, const std::string& after) {
        std::vector<Alternative> alternatives;
        for (int n = least; n <= most; n++) alternatives.push_back({number_words[n] + after, 12 - n});
        return least + int(pen.choose(alternatives));
    }

    // The subject of a sentence about the hero: one or two alternatives of a choice.
    std::vector<Alternative> subject() const {
        if (!clear()) return {{hero.name + " ", 6}};
        return {{hero.name + " ", 2}, {hero.She() + " ", 4}};
    }

    // Acts that do not change the state, as the first alternatives of a choice. finish_idle() says the rest
    // of such an act and returns whether the choice was one.
    std::vector<Alternative> idle() const {
        std::vector<Alternative> acts = joined(any_of(idle_acts, ". "), any_of(idle_verbs, " "));
        for (Alternative& act : acts) act.weight = 1 + act.weight / 4;
        return acts;
    }

    bool finish_idle(size_t act) {
        if (act >= idle_acts.size() + idle_verbs.size()) return false;
        if (act >= idle_acts.size()) choose_thing(". ");
        return true;
    }

    // Hero and companion talk; "I like has been said.
    void talk() {
        choose_word(topics, ",\" said " + companion.name + ". \"");
        pen.choose({{"So do I", 5}, {"I do not", 2}, {"Not me", 1}});
        pen.say(",\" said " + hero.name + ". ");
    }

    void open() {
        size_t way = pen.choose({{"One ", 5}, {"It was a ", 3}, {"There was once a ", 3}});
        if (way < 2) {
            choose_word(weathers, " ");
            choose_word(times, way == 0 ? ", " : ". ");
            hero = choose_person(" was ");
        } else {
            choose_word(traits, " ");
            hero.girl = pen.choose({{"girl called ", 1}, {"boy called ", 1}}) == 0;
            hero.name = choose_word(hero.girl ? girls : boys, ". ");
            pen.choose({{"One day " + hero.she() + " was ", 2}, {hero.She() + " was ", 1}});
        }
        choose_place(true);
    }

    // The companion comes to the hero; "Then " has been said.
    void arrive() {
        companion = choose_person(" ");
        together = true;
        choose_word(arrivals, ". ");
    }

    // An animal comes and is fed; "A " has been said.
    void feed_animal() {
        animal_came = true;
        choose_word(animal_looks, " ");
        std::vector<Alternative> names;
        for (size_t i = 0; i < animals.size(); i++)
            names.push_back({animals[i].name + " came up to ", int(1 + 40 / (i + 3))});
        const Animal& animal = animals[pen.choose(names)];
        pen.say(hero_or_her() + ". " + (clear() ? hero.She() : hero.name) + " gave it " + animal.food + ". ");
    }
};

// Chooses the first words of the next sentence among the turns that are possible now.
struct TurnChoice {
    std::vector<Alternative> alternatives;
    std::vector<Turn> turns;
    void add(Turn turn, const std::string& text, int weight) {
        alternatives.push_back({text, weight});
        turns.push_back(turn);
    }
    Turn choose(StoryPen& pen) const { return turns[pen.choose(alternatives)]; }
};

// The turns of every kind of story. `step` sentences have been told; an ending becomes more likely with each.
static TurnChoice usual_turns(const Teller& teller, int step) {
    TurnChoice choice;
    const int longest = 5;
    if (step < longest) {
        for (const Alternative& start : teller.subject()) choice.add(hero_acts, start.text, start.weight);
        if (teller.together) choice.add(both_act, "They ", 3);
        if (teller.together) choice.add(small_talk, "\"I like ", 2);
        if (teller.together) choice.add(companion_acts, teller.companion.name + " ", 2);
        if (!teller.together) choice.add(somebody_comes, "Then ", 3);
        if (!teller.animal_came) choice.add(animal_comes, "A ", 1);
    }
    if (step >= 2) choice.add(ending, "At last ", 2 * step - 2);
    return choice;
}

// Tells sentences up to the ending. `About` has the acts, the question and the ending of a kind of story.
template <class About>
static void tell_about(Teller& teller, About about) {
    for (int step = 0;; step++) {
        TurnChoice choice = usual_turns(teller, step);
        if (step > 0 && teller.together && !teller.asked)
            choice.add(question, about.question_start(), About::question_weight);
        const Turn turn = choice.choose(teller.pen);
        teller.asked |= turn == question;
        if (turn == hero_acts) about.hero_does();
        if (turn == companion_acts) about.companion_does();
        if (turn == both_act) about.both_do();
        if (turn == question) about.ask();
        if (turn == ending) return about.end();
        if (turn == somebody_comes) teller.arrive();
        if (turn == animal_comes) teller.feed_animal();
        if (turn == small_talk) teller.talk();
    }
}

// --- stories about a thing that stays where it was put ---

struct ThingStory {
    Teller& teller;
    Thing thing;
    bool held = true;
    size_t place = 0;  // where it was put
    std::string spot = {};

    std::string where() const { return spot + (place == teller.place ? "" : " " + places[place].at); }

    void hero_does() {
        StoryPen& pen = teller.pen;
        bool here = place == teller.place;
        std::vector<Alternative> acts = teller.idle();
        if (held) {
            acts.push_back({"put the " + thing.name + " ", 60});
            acts.push_back({"played with the " + thing.name + ". ", 15});
        } else if (here) {
            acts.push_back({"looked " + spot + " and took the " + thing.name + ". ", 30});
        }
        if (!teller.together) acts.push_back({"went to the ", 40});
        size_t act = pen.choose(acts);
        if (teller.finish_idle(act)) return;
        if (acts[act].text.starts_with("went")) return teller.choose_place(false);
        if (acts[act].text.starts_with("looked")) held = true;
        if (acts[act].text.starts_with("put")) {
            spot = teller.choose_word(places[teller.place].spots, ". ");
            place = teller.place;
            held = false;
        }
    }

    void companion_does() { teller.finish_idle(teller.pen.choose(teller.idle())); }
    void both_do() {
        std::vector<Alternative> acts = {{"went to the ", 4}, {"sat down and talked. ", 1}, {"laughed. ", 1}};
        if (held) acts.push_back({"played with the " + thing.name + ". ", 3});
        if (teller.pen.choose(acts) == 0) teller.choose_place(false);
    }

    static const int question_weight = 4;
    std::string question_start() const { return held ? "\"What " : "\"Where "; }
    void ask() {
        const std::string& name = teller.hero.name;
        std::string asked = "?\" asked " + teller.companion.name + ". ";
        if (held)
            teller.pen.say("do you have" + asked + "\"I have " + thing.full() + ",\" said " + name + ". ");
        else
            teller.pen.say("is your " + thing.name + asked + "\"It is " + where() + ",\" said " + name +
                           ". ");
    }

    void end() {
        Teller& t = teller;
        t.pen.say((t.together ? "they" : t.hero.she()) + " went home. ");
        if (held)
            t.pen.say(t.hero.name + " still had " + thing.the() + ". ");
        else
            t.pen.say("The " + thing.name + " was still " + spot + " " + places[place].at + ". ");
    }
};

// --- stories about addition and subtraction ---

struct NumberStory {
    Teller& teller;
    bool food;
    std::string noun;  // plural
    int count = 0;
    static const int most = 20;

    std::string counted() const {
        return number_words[count] + " " + (count == 1 ? noun.substr(0, noun.size() - 1) : noun);
    }
    // "Now she had seven apples. "
    void add(const std::string& after) {
        count += teller.choose_number(1, std::min(most - count, 9), after);
        teller.pen.say("Now " + teller.hero_again() + " had " + counted() + ". ");
    }
    void take_away() {
        count -= teller.choose_number(1, std::min(count, 9), ". ");
        teller.pen.say("Then " + teller.hero_again() + " had " + counted() + " left. ");
    }

    // Somebody adds to the hero's things or takes from them, in one of the given ways.
    void change(const Words& ways_to_get, const Words& ways_to_lose, const std::string& object) {
        std::vector<Alternative> gains, losses;
        if (count < most) gains = any_of(ways_to_get, object);
        if (count > 0) losses = any_of(ways_to_lose, " ");
        if (teller.pen.choose(joined(gains, losses)) < gains.size())
            add(" more. ");
        else
            take_away();
    }
    void hero_does() {
        change({"found", "bought", "got"}, {food ? "ate" : "lost", "sold", "gave away"}, " ");
    }
    void companion_does() {
        std::string object = teller.hero_or_her();
        change({"gave"}, {"took", "borrowed"}, " " + object + " ");
    }
    void both_do() { teller.choose_word({"laughed", "sat down and talked", "counted again"}, ". "); }

    static const int question_weight = 4;
    std::string question_start() const { return "\"How many "; }
    void ask() {
        teller.pen.say(noun + " do you have?\" asked " + teller.companion.name + ". \"I have " +
                       (count == 0 ? "none" : number_words[count]) + ",\" said " + teller.hero.name + ". ");
    }

    void end() {
        const Person& hero = teller.hero;
        teller.pen.say((teller.together ? "they" : hero.she()) + " went home. " + hero.name + " had " +
                       counted() + ". ");
    }
};

static void tell_of_numbers(Teller& teller) {
    const auto nouns = joined(any_of(foods, ": "), any_of(keepsakes, ": "));
    const Teller::Choice noun = teller.choose_of(nouns, ": ");
    NumberStory about = {teller, noun.index < foods.size(), noun.word};
    about.count = teller.choose_number(2, 9, ". ");
    teller.animal_came = true;  // no animal, since it might be fed what is counted
    tell_about(teller, about);
}

// --- stories about things that change hands ---

struct GiftStory {
    Teller& teller;
    Thing things[2];
    bool with_hero[2] = {true, false};

    bool one_each() const { return with_hero[0] != with_hero[1]; }

    void somebody_does(bool hero) {
        std::vector<Alternative> acts = teller.idle();
        size_t first_gift = acts.size();
        std::vector<int> given;
        for (int i = 0; i < 2; i++) {
            if (with_hero[i] != hero) continue;
            std::string to = hero ? teller.companion.name : teller.hero_or_her();
            acts.push_back({"gave the " + things[i].name + " to " + to + ". ", 40});
            given.push_back(i);
        }
        size_t act = teller.pen.choose(acts);
        if (!teller.finish_idle(act)) with_hero[given[act - first_gift]] = !hero;
    }

    void hero_does() { somebody_does(true); }
    void companion_does() { somebody_does(false); }
    void both_do() {
        std::vector<Alternative> acts = {{"went to the ", 4}, {"sat down and talked. ", 1}, {"laughed. ", 1}};
        if (one_each()) acts.push_back({"swapped. ", 4});
        size_t act = teller.pen.choose(acts);
        if (act == 0) teller.choose_place(false);
        if (act == 3) std::swap(with_hero[0], with_hero[1]);
    }

    static const int question_weight = 3;
    std::string question_start() const { return "\"Who has the "; }
    void ask() {
        const std::string &name = teller.hero.name, asked = "?\" asked ";
        size_t which = teller.pen.choose({{things[0].name + asked, 1}, {things[1].name + asked, 1}});
        teller.pen.say((teller.clear() ? teller.hero.her() : name + "'s") + " ");
        teller.choose_word(elders, ". \"");
        teller.pen.say((with_hero[which] ? "I do" : teller.companion.name + " does") + ",\" said " + name +
                       ". ");
    }

    std::string belongings(bool hero) const {
        std::string list;
        for (int i = 0; i < 2; i++)
            if (with_hero[i] == hero) list += (list.empty() ? "" : " and ") + things[i].the();
        return (hero ? teller.hero.name : teller.companion.name) + " had " +
               (list.empty() ? "nothing" : list);
    }
    void end() {
        teller.pen.say("they went home. " + belongings(true) + ", and " + belongings(false) + ". ");
    }
};

static void tell_of_gifts(Teller& teller) {
    teller.companion = teller.choose_person(". ");
    teller.together = true;
    teller.pen.say((teller.clear() ? teller.hero.She() : teller.hero.name) + " had ");
    Thing first = teller.choose_thing(", and ");
    teller.pen.say(teller.companion.name + " had ");
    tell_about(teller, GiftStory{teller, {first, teller.choose_thing(". ", first.name)}});
}

static Story tell(StoryPen pen) {
    Teller teller = {pen};
    teller.open();
    pen.choose(teller.subject());
    const size_t kind = pen.choose({{"had ", 5}, {"counted " + teller.hero.her() + " ", 4}, {"met ", 4}});
    if (kind == 0) tell_about(teller, ThingStory{teller, teller.choose_thing(". ")});
    if (kind == 1) tell_of_numbers(teller);
    if (kind == 2) tell_of_gifts(teller);
    teller.choose_word(endings, ".\n\n");
    return pen.story;
}

Story write_story(std::mt19937_64& random) { return tell({&random, ""}); }

Story read_story(std::string_view text) { return tell({nullptr, text}); }
