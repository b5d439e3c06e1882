// The words of the corpus: lists from which corpus.cpp draws. The first words of a list are drawn most often,
// as in natural text, where few words make up most of the text. The text of a seed depends on the order and
// number of the words.
#pragma once
#include <string>
#include <vector>

using Words = std::vector<std::string>;

inline const Words girls = {"Mia",  "Lily",  "Anna",  "Emma", "Sara",  "Nora", "Ruth", "Ida",  "Clara",
                            "Zoe",  "Helen", "Jane",  "Kate", "Lucy",  "Olga", "Rosa", "Vera", "Wendy",
                            "Tina", "Paula", "Grace", "Ella", "Fiona", "Mary", "Nina", "Sofia"};
inline const Words boys = {"Tom",   "Ben",   "Sam",   "Max",   "Leo",    "Jack", "Paul",  "Noah", "Otto",
                           "Peter", "Adam",  "Carl",  "David", "Finn",   "Hugo", "Ivan",  "John", "Karim",
                           "Luke",  "Oscar", "Robin", "Tim",   "Victor", "Will", "Yusuf", "Felix"};

inline const Words weathers = {"sunny", "rainy", "cold",  "warm",   "windy",
                               "quiet", "snowy", "foggy", "bright", "grey"};
inline const Words times = {"day", "morning", "afternoon", "evening"};
inline const Words traits = {"little", "clever", "shy",   "brave",  "kind",   "curious", "young",   "quiet",
                             "funny",  "busy",   "merry", "sleepy", "gentle", "proud",   "careful", "wise"};

// What a thing looks like, with the matching article.
inline const Words looks = {"a red",    "a blue",    "a small",  "a new",    "an old",
                            "a green",  "a big",     "a yellow", "a round",  "a wooden",
                            "a shiny",  "a white",   "a heavy",  "a black",  "a soft",
                            "a pretty", "an orange", "a broken", "a purple", "a strange"};
inline const Words things = {
    "ball",   "book",   "kite",   "hat",     "cup",    "drum",    "key",     "lamp",     "coin",  "bell",
    "doll",   "boat",   "coat",   "spoon",   "brush",  "whistle", "blanket", "map",      "flute", "puzzle",
    "mirror", "bottle", "hammer", "feather", "ribbon", "clock",   "candle",  "pencil",   "scarf", "letter",
    "bucket", "basket", "plate",  "string",  "toy",    "glove",   "ring",    "painting", "box",   "stick"};

// Where stories happen: the place's name, the phrase for being there, and spots where a thing can be put.
struct Place {
    std::string name, at;
    Words spots;
};
inline const std::vector<Place> places = {
    {"garden", "in the garden", {"under the apple tree", "behind the fence", "between the roses"}},
    {"kitchen", "in the kitchen", {"on the table", "behind the stove", "in the cupboard"}},
    {"park", "in the park", {"under the bench", "beside the pond", "on the swing"}},
    {"bedroom", "in the bedroom", {"under the bed", "on the chair", "in the drawer"}},
    {"barn", "in the barn", {"in the hay", "on the cart", "behind the ladder"}},
    {"school", "at school", {"on the desk", "behind the map of the world", "under the stairs"}},
    {"forest", "in the forest", {"under the old oak", "in a hollow tree", "behind a bush"}},
    {"beach", "on the beach", {"in the sand", "under a big stone", "beside the boat house"}},
    {"market", "at the market", {"beside the well", "on the counter", "under the tent"}},
    {"library", "in the library", {"on the top shelf", "between two books", "behind the globe"}},
    {"farm", "on the farm", {"in the shed", "on the tractor", "behind the gate"}},
    {"station", "at the station", {"beside the rails", "under the clock", "on the platform"}},
};

// Animals, each with the one food that it eats.
struct Animal {
    std::string name, food;
};
inline const std::vector<Animal> animals = {
    {"dog", "a bone"},        {"cat", "some milk"},   {"bird", "some seeds"}, {"rabbit", "a carrot"},
    {"mouse", "some cheese"}, {"duck", "some bread"}, {"horse", "an apple"},  {"goat", "some grass"},
    {"squirrel", "a nut"},    {"hen", "some corn"},   {"hedgehog", "a worm"}, {"fox", "some meat"},
    {"bear", "some honey"},   {"monkey", "a banana"},
};
inline const Words animal_looks = {"small", "hungry",   "brown", "thin",  "grey",
                                   "young", "friendly", "wet",   "lonely"};

// Things that can be counted; the singular is the word without its s.
inline const Words foods = {"apples", "pears", "plums",   "nuts",   "cakes",  "eggs",
                            "buns",   "figs",  "carrots", "grapes", "lemons", "biscuits"};
inline const Words keepsakes = {"shells",  "stones",   "stamps", "marbles", "buttons", "cards",
                                "flowers", "feathers", "beads",  "tickets", "badges",  "pebbles"};

inline const Words number_words = {"no",       "one",      "two",      "three",   "four",    "five",
                                   "six",      "seven",    "eight",    "nine",    "ten",     "eleven",
                                   "twelve",   "thirteen", "fourteen", "fifteen", "sixteen", "seventeen",
                                   "eighteen", "nineteen", "twenty"};

inline const Words elders = {"mother", "father",      "grandmother", "teacher", "uncle",
                             "sister", "grandfather", "aunt",        "brother", "neighbour"};

// Acts that do not change the state of the story: without an object, and with a thing as object.
inline const Words idle_acts = {"sat down and rested",
                                "looked at the sky",
                                "sang a song",
                                "was a little tired",
                                "laughed",
                                "ate some bread",
                                "drank some water",
                                "jumped up and down",
                                "thought for a while",
                                "clapped",
                                "listened to the wind",
                                "danced"};
inline const Words idle_verbs = {"saw",        "drew",         "dreamt of",   "told a story about",
                                 "wished for", "talked about", "heard about", "remembered"};
inline const Words topics = {"stories", "music",   "snow",    "games",      "soup",      "the sea",
                             "birds",   "honey",   "summer",  "trains",     "rain",      "horses",
                             "puzzles", "winter",  "secrets", "long walks", "cheese",    "riddles",
                             "thunder", "islands", "dragons", "pancakes",   "mountains", "ghosts"};
inline const Words arrivals = {"came by", "came to play", "came along", "ran up", "arrived", "walked in"};
inline const Words endings = {
    "It was a good day", "Everything was fine",          "What a day that was", "Tomorrow was another day",
    "Soon it was dark",  "That night the moon was full", "Nobody was sad",      "The stars came out"};
