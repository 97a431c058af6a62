"""What the users of a synthetic world differ in, and what may be said and asked about it: a closed vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attribute:
    """Something that users differ in."""

    name: str
    topic: str
    dimension: str
    affordances: tuple[str, ...]
    advice: Mapping[str, str]
    """Value -> what an assistant should think of because of it; the first value is the one that most people have."""
    implied: str
    """What a user says from which the value, {}, follows."""
    paraphrase: str
    """Asks for the value without the attribute's name. {} is the user, here and below."""
    applied: str
    """Asks for the advice."""
    offer: str
    """The value, {}, in an option."""

    @property
    def values(self) -> list[str]:
        return list(self.advice)


# fmt: off
ATTRIBUTES = (
    Attribute("favourite food", "food", "taste", ("meal", "trip"),
              {"pizza": "the brick oven", "noodles": "the wok bar", "curry": "the spice house",
               "salad": "the green table", "soup": "the copper pot", "fish": "the harbour grill"},
              "Tonight I am having {} again, as always when I may choose.",
              "Which dish does {} choose whenever there is a choice?",
              "At which house should a table be booked for {}?", "{} to eat"),
    Attribute("usual drink", "drinks", "thirst", ("meal", "support"),
              {"coffee": "the bean mill", "tea": "the kettle", "juice": "the fruit press", "cocoa": "the milk pan",
               "cider": "the apple barrel"},
              "I am on my third cup of {} today.",
              "What is most often in the cup of {}?",
              "What should be made ready on the table before {} comes?", "{} to drink"),
    Attribute("dinner hour", "evenings", "hour", ("meal", "schedule"),
              {"seven o'clock": "the second sitting", "six o'clock": "the first sitting",
               "eight o'clock": "the third sitting", "nine o'clock": "the last sitting"},
              "It is nearly {}, so I must sit down at the table.",
              "When does {} sit down to eat in the evening?",
              "Which sitting should be reserved for {}?", "a table at {}"),
    Attribute("eating place", "the house", "place", ("meal",),
              {"the kitchen": "the round stools", "the garden": "the folding chairs",
               "the balcony": "the narrow bench", "the attic": "the floor cushions"},
              "I am carrying my plate to {}, as I do every day.",
              "In which part of the house does {} take meals?",
              "Which seats should be prepared for a supper with {}?", "a supper in {}"),
    Attribute("preferred vehicle", "journeys", "transport", ("trip", "schedule"),
              {"the train": "the railway office", "the bus": "the coach yard", "the bicycle": "the repair shop",
               "the ship": "the long pier", "the horse": "the stable"},
              "When I go away, I never take anything but {}.",
              "How does {} get about on a journey?",
              "Where should a journey with {} begin?", "a journey on {}"),
    Attribute("favourite landscape", "landscapes", "scenery", ("trip",),
              {"the coast": "a sun hat", "the hills": "a pair of boots", "the forest": "a field guide",
               "the desert": "a water flask", "the moor": "a warm coat"},
              "Over my bed hang four pictures of {}.",
              "What kind of country does {} like to look at?",
              "What should be packed for a holiday with {}?", "a week in {}"),
    Attribute("favourite season", "seasons", "weather", ("trip", "schedule"),
              {"summer": "a date in July", "spring": "a date in April", "autumn": "a date in October",
               "winter": "a date in January"},
              "I count the days until {} comes round again.",
              "Which part of the year does {} look forward to?",
              "Which date should be proposed to {} for a visit?", "a visit in {}"),
    Attribute("favourite lodging", "lodgings", "lodging", ("trip",),
              {"an inn": "the market square", "a tent": "the camp ground", "a cabin": "the upper valley",
               "a houseboat": "the canal bank"},
              "I have slept in {} again and would not change it for a palace.",
              "Under what roof does {} like to sleep when away?",
              "Where should a bed be looked for when {} comes along?", "nights in {}"),
    Attribute("free day", "the week", "day", ("schedule", "support"),
              {"Sunday": "the church hall", "Monday": "the town hall", "Wednesday": "the market hall",
               "Friday": "the school hall"},
              "It is {}, so nobody expects me anywhere today.",
              "On which weekday has {} nothing to do?",
              "Which hall should be rented for a meeting with {}?", "a talk on {}"),
    Attribute("best working time", "work", "time of day", ("schedule", "writing"),
              {"the morning": "the sunrise shift", "the afternoon": "the middle shift",
               "the evening": "the sunset shift", "the night": "the moonlight shift"},
              "My head is never clearer than in {}.",
              "When does {} get most done?",
              "Which shift should be given to {}?", "work in {}"),
    Attribute("preferred tone", "letters", "tone", ("writing",),
              {"formal": "the full title", "plain": "short words", "playful": "a riddle", "warm": "a kind greeting"},
              "Please keep the letter {}, I cannot stand it any other way.",
              "How do letters have to sound for {}?",
              "What should be put into a letter for {}?", "a {} letter"),
    Attribute("usual paper", "stationery", "material", ("writing",),
              {"white paper": "the corner shop", "linen paper": "the weaving mill", "rice paper": "the silk store",
               "brown paper": "the grocer"},
              "My desk is full of {} once more.",
              "What does {} write on?",
              "Where should sheets be bought for {}?", "a pile of {}"),
    Attribute("favourite music", "music", "sound", ("support", "schedule"),
              {"rock": "the old factory", "jazz": "the blue cellar", "opera": "the grand theatre",
               "folk": "the village green", "choir": "the stone chapel"},
              "The neighbours complain that they hear nothing but {} from my room.",
              "What does {} like to listen to?",
              "Which place should be suggested to {} for a concert?", "an hour of {}"),
    Attribute("favourite pastime", "pastimes", "activity", ("support", "trip"),
              {"gardening": "a bag of seeds", "chess": "a wooden board", "pottery": "a lump of clay",
               "sailing": "a new rope", "painting": "a set of brushes"},
              "Every hour that I have left goes into {}.",
              "How does {} spend spare hours?",
              "Which gift should be chosen for {}?", "time for {}"),
    Attribute("way to rest", "rest", "comfort", ("support",),
              {"a nap": "the quiet room", "a walk": "the river path", "a bath": "the warm pool",
               "a prayer": "the small shrine"},
              "The day was long, so {} will do me good, as it does each time.",
              "What helps {} after a long day?",
              "Where should {} be taken after a hard day?", "{} in the evening"),
    Attribute("dearest animal", "animals", "animal", ("support", "trip"),
              {"the dog": "a long leash", "the cat": "a ball of wool", "the parrot": "a tall cage",
               "the tortoise": "a box of sand"},
              "I must go home early, for {} is waiting for me.",
              "Which creature does {} care for most?",
              "What should be brought along for the pet of {}?", "room for {}"),
)
# fmt: on
BY_NAME = {attribute.name: attribute for attribute in ATTRIBUTES}
