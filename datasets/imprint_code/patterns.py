"""How release notes say that something is new: patterns over sentences in which each token is one character.

Groups: `list` (and `list2`), what is announced; `noun`, what the notes call it; `in`, the class or module that holds
it; `to`, what got a parameter; `methods`, `of` and `own`, where that is a method of something.
"""

from __future__ import annotations

import re

from .notes import MARK

_ANY = MARK[1:-1]  # for use inside other brackets


def _compiled(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


# ---------------------------------------------------------------- words

_AND = r"(?:\s*,?\s+(?:and|or|as well as)\s+(?:(?:the|an?|both)\s+)?|\s*[,/&+]\s*)"
_TOKENS = f"{MARK}(?:{_AND}{MARK})*"
_MODULE = r"(?:namespace|module|sub-?module|package|sub-?package)"
NOUN = (
    r"(?:(?:generalized|static|class|abstract|helper|utility|context|public|top-level|python|window|generator|reactive"
    r"|read-only|convenience|builder|async)[ -])*"
    r"(?:functions?|ufuncs?|methods?|classmethods?|class(?:es)?|routines?|constructors?|decorators?|managers?|apis?"
    r"|distributions?|attributes?|propert(?:y|ies)|dtypes?|types?|(?:sub-?)?(?:modules?|packages?)|namespaces?"
    r"|operators?|ops?|expressions?|exceptions?|errors?|warnings?|enums?|alias(?:es)?|optimizers?|samplers?|backends?"
    r"|variables?|constants?|accessors?|fields?|class ?vars?|booleans?|slots?|toggles?|env(?:ironment)? vars?)"
)
"""What something new may be called."""
PARAMETER_NOUN = (
    r"(?:(?:optional|keyword|keyword-only|positional|named|boolean)[ -])*"
    r"(?:keyword(?:[ -]only)? (?:arguments?|parameters?|args?)|keywords?|parameters?|params?|arguments?|args?|kwargs?"
    r"|options?|switch(?:es)?|flags?)\b"
)
_LIST = f"(?P<list>{_TOKENS})"
_ITEMS = f"(?P<list>{MARK}(?: {NOUN}\\b)?(?:{_AND}{MARK}(?: {NOUN}\\b)?)*)"  # each may have a noun of its own
_TO_LIST = f"(?P<to>{_TOKENS})"
_IN_LIST = f"(?P<in>{_TOKENS})"
_NOUN = f"(?P<noun>{NOUN})"
_PN = PARAMETER_NOUN
_FREE = r"(?:(?!(?:values?|for|of|use|with|via|from|to|on|in|support|as)\b)[\w'-]+,? ){0,6}"
_A = r"(?:an? |the |two |three |several |both )?(?:new )?"
_BE = r"(?:was|were|is|are|has been|have been|has also been|can be)(?: now| also)*"
_ADDED = r"(?:added|introduced|implemented|exposed|(?:made )?available|made public|created|provided|defined|new)"
_ADD = (
    r"(?:add(?:s|ed)?|introduc(?:es?|ed)|expos(?:es?|ed)|implement(?:s|ed)?|creat(?:es?|ed)|provid(?:es?|ed)"
    r"|export(?:s|ed)?)"
)
_GAINED = r"(?:has|have|gained|has gained|have gained|got|acquired|have acquired|was given|have been given)"
_START = (
    r"^(?:(?:with|in|for) [^,.;:]{1,60}, ?)?(?:also |we(?:'ve|\u2019ve| have)? (?:also )?|additionally,? |"
    r"furthermore,? |users can now use )?"
)

_NO_NEWS = "support|improvement|fix|option|parameter|argument|keyword|mode"

# ---------------------------------------------------------------- callables

ADD = re.compile(rf"{_START}{_ADD} {_A}{_FREE}(?:{NOUN}[,:]? )?(?:called |named )?{_ITEMS}", re.IGNORECASE)
"""`Added T and T`."""
ANNOUNCED = _compiled(
    rf"\bnew (?:{_FREE}){_NOUN}\b(?: (?:called|named|is|are))?[,:]? {_ITEMS}",
    rf"\bnew {_ITEMS}(?= {NOUN}\b)",
    rf"{_START}the new {_LIST}(?= \w+s\b)",
    rf"^{_LIST} (?:{NOUN} )?(?:have |has )?(?:been )?{_ADDED}(?=[.,;]|\Z)",
    rf"\b(?:using|use) (?:the )?new {_LIST}(?=[.,;]|\Z)",
    rf"{_START}(?:the |an? |both )?(?:new )?(?:{_NOUN} )?{_ITEMS}(?:, which [^.;]{{,120}},)? {_BE} {_ADDED}\b",
    rf"^{_LIST} implementation(?=[.,;(]|\Z)",
    rf"\bthere is (?:now |also )*an? (?:new|alternative|additional) (?:[\w-]+ ){{0,3}}{_NOUN},? {_LIST}",
    rf"\((?P<list>{MARK})\) {_BE} (?:added|introduced|implemented)\b",
    rf"\bnew {_NOUN}\b[^.;:{_ANY}]*,? (?:named|called) {_LIST}",
    rf"^(?:an?|the) (?!.*\b(?:{_NO_NEWS})\b)[^.;:{_ANY}]* (?:is|are) (?:now )?(?:implemented in|available (?:via|as))"
    rf" (?:the )?(?:new )?(?:function |class )?(?P<list>{MARK})(?=[.,;]|\Z)",
    rf"^(?:an?|the) (?!.*\b(?:{_NO_NEWS})\b).* {_BE} added in (?P<list>{MARK})(?=[.,;]|\Z)",
    rf", (?:the )?(?:new )?{_NOUN} {_ITEMS} {_BE} {_ADDED}\b",
    rf"\b{_ADDED}\b[^.;:{_ANY}]*(?<!such) as (?:the )?(?:new )?{_LIST}(?=[\s.,;]|\Z)",
    rf"\bnew\b.* (?:is|are) (?:now )?available (?:through|via|as) (?:the )?(?:new )?{_LIST} {_NOUN}\b",
    rf"\b(?:gained|new|additional) (?:[\w-]+ )*{_NOUN}(?: for [\w -]+)?: {_LIST}(?=\.| \(|\Z)",
    rf"^{_LIST} (?:is|are) (?:an? )?new (?:[\w-]+ ){{0,3}}{_NOUN}\b",
    rf"\b(?:additional|new|further) (?:[\w-]+ )*{_NOUN} (?:now )?(?:include|comprise|are):? {_LIST}",
)
"""Other sentences that announce callables wherever they stand."""
ADDED_WITH = re.compile(rf"{_BE} (?:added|introduced|implemented),? with (?:the )?(?:new )?{_LIST}", re.IGNORECASE)
"""What was added, with the callables that do it; these are written with what they are in."""
ARGUMENT_BEFORE = re.compile(rf"\b{_PN},? \Z", re.IGNORECASE)
NOUN_BEFORE = re.compile(rf"\b({NOUN})[,:]? (?:called |named )?\Z", re.IGNORECASE)
AND_ALSO = re.compile(rf" and (?P<list>{MARK}) for (?:the )?\w+", re.IGNORECASE)
"""Behind `added T for this`: `and T for that`."""
INSIDE = re.compile(
    rf"\bnew (?P<in>{MARK}) {_MODULE} (?:includes?|contains?|provides?|offers?|has|with) (?:[\w-]+ )*{NOUN} {_LIST}",
    re.IGNORECASE,
)
DOES = re.compile(
    rf"^{_LIST} (?:adds?|computes?|implements?|performs?|evaluates?|calculates?"
    r"|represents?|provides?(?! (?:better|more))"
    r"|allows you to|lets you|enables) ",
    re.IGNORECASE,
)
"""`T computes ...`: tells what something new does, where nothing says that it was there before."""
ENTRY = re.compile(
    rf"^(?:use )?{_LIST}(?:,?\s*\Z|\.(?:\s|\Z)|,? (?:an?|the|which|for|to|that|can be used) |\s*[-\u2013\u2014:]\s"
    rf"|,? (?:is|are) (?:an? )?(?:[\w-]+ ){{0,3}}{NOUN}\b)",
    re.IGNORECASE,
)
"""An entry of a list that is introduced as one of new things."""
HAS_METHOD = _compiled(
    rf"{_IN_LIST}(?: class(?:es)?| objects?| instances?| distributions?| widgets?)?(?: now)?"
    rf" (?:{_GAINED}|supports?|exposes?|implements?)(?: now)? {_A}{_FREE}"
    rf"(?P<list>\(?{_TOKENS}\)?) (?:(?!and|or)\w+ )?(?:class)?methods?\b",
    rf"(?P<in>{MARK})(?: (?:sub)?class(?:es)?)? (?:has|have) (?:an? )?new (?:class)?methods?,? {_LIST}",
    rf"\bnew (?:class)?methods?,? {_LIST} (?:in|of|on|for|to) (?:the )?(?:class )?{_IN_LIST}",
    rf"{_ADD} (?:an? |the )?(?:new )?{_LIST} functions? to {_IN_LIST}",
    rf"(?P<in>{MARK}) class (?:now )?(?:has|gained) (?:an? )?(?:new )?{_LIST} function\b",
    rf"(?:{_ADD}|^) ?{_A}{_FREE}{_LIST} (?:class )?methods?\b[^.;{_ANY}]* (?:{_BE} {_ADDED} )?(?:to|for|on)"
    rf" (?:an? |the |all )?(?:class )?{_IN_LIST}",
    rf"{_ADD} {_A}(?:class )?methods? {_LIST} to (?:the )?(?:class )?{_IN_LIST}",
)
IS_MODULE = re.compile(rf"({MARK}) {_MODULE}\b|\b{_MODULE},? ({MARK})", re.IGNORECASE)
METHODS_OF = re.compile(f"methods? of (?:the )?(?P<of>{_TOKENS})", re.IGNORECASE)
EXPOSED_IN = re.compile(
    rf"{_BE} (?:added|exposed|available|importable)(?: publicly)? (?:to|in|from|under) (?:the )?(?P<in>{MARK})"
    r"(?=[\s.,;]|\Z)",
    re.IGNORECASE,
)
PLACE = re.compile(rf"\b(?:to|in) the (?:new )?{_MODULE} (?P<in>{MARK})", re.IGNORECASE)

NOT_ITSELF = re.compile(
    rf" ?(?:(?!and|or|with|for|to|via|using|in|of|as)\w+ )?{_PN}"
    r"| (?:methods? of|support|mode|backend|values?|engine|features?|format|style|theme|example|tests?|badge"
    r"|settings?|configurations?|config|markers?|keys?|columns?|environment|mechanism|headers?"
    r"|as an? (?:[\w-]+ ){0,3}(?:dependency|requirement|default|extra))\b",
    re.IGNORECASE,
)
"""What follows a token that is not itself what is announced."""
AS_METHOD = re.compile(
    rf"(?: {_BE} {_ADDED})? as (?:an? |the )?(?:(?:{MARK} )?[\w ]*\bmethods?\b|{MARK} (?:in|of|for)\b)", re.IGNORECASE
)
CALLED = re.compile(r" (?:function|class|decorator|context manager)(?:s|es)?[ ,]", re.IGNORECASE)
TO_DO = re.compile(r" to (?!the |an? |all |both |each |every |our |its )[a-z]+ ")
IN_WHAT = re.compile(f" in (?:the )?(?P<in>{MARK})", re.IGNORECASE)
PART = re.compile(rf"(?: (?!using\b|for\b)[a-z]+){{1,3}} (?:to|for|in|of) (?:the )?{MARK}")
"""`Added T filter to T`: part of something else."""
TO_WHAT = re.compile(rf" to (?:the )?{_TO_LIST}(?=[\s.,;]|\Z)")

# ---------------------------------------------------------------- parameters

_TO = (
    r"(?:to|for|in|by|on|of):? (?:(?:the|all|both|following|functions?|methods?|classes)[ :]+)*:?\s*"
    rf"(?:(?:the )?(?:constructor|initiali[sz]er|signature) of (?:the )?)?{_TO_LIST}"
    rf"(?: (?P<methods>methods)(?: of (?P<of>{_TOKENS}))?)?"
)
_FOR = r"(?:support for )?(?:an? |the )?"
PARAMETERS = _compiled(
    rf"{_START}{_ADD} {_FOR}{_FREE}{_PN},? {_LIST} {_TO}",
    rf"{_START}{_ADD} {_FOR}{_FREE}{_LIST} {_PN} {_TO}",
    rf"{_START}{_ADD} {_LIST}(?:,? and [a-z ]+)? support {_TO}",
    rf"{_FOR}{_LIST} {_PN}:? {_BE} (?:{_ADDED}|supported|accepted) {_TO}",
    rf"{_FOR}(?:new )?{_PN},? {_LIST} {_BE} (?:{_ADDED}|supported|accepted) {_TO}",
    rf"(?:(?P<own>{_TOKENS}) methods? of (?:the )?)?{_TO_LIST}(?: (?:functions?|methods?|class))*,?"
    rf"(?: can| will)?(?: now)?(?: also| optionally)*"
    rf" (?:{_GAINED}|supports?|accepts?|recogni[sz]es?|receives?|takes?|offers?|includes?|exposes?|introduces?|added)"
    rf"(?: now)? {_FREE}(?:{_PN}:?,? {_LIST}|(?P<list2>{_TOKENS})(?: \([^()]*\))? (?:\w+ )?{_PN})"
    rf"(?! of type| to {MARK})",
    rf"{_TO_LIST} now supports?\b[^.]* with the {_LIST} (?:keyword|argument|parameter)\b",
    rf"^new {_PN},? {_LIST} added {_TO}",
    rf"{_START}{_ADD} {_FOR}{_FREE}{_PN},? {_LIST} for (?:[\w-]+ )+in (?:the )?{_TO_LIST}",
    rf"(?:can|may|possible to)(?: now)? (?:pass|provide|specify) {_FOR}{_FREE}{_LIST} {_PN} {_TO}",
    rf"\bnew (?:{_LIST} {_PN}|{_PN},? (?P<list2>{_TOKENS})) {_TO}",
    rf"{_TO_LIST}(?: (?:functions?|methods?|class))*,?(?: can| will)? now(?: also| optionally)*"
    rf" (?:(?:accept|support)s? passing|accepts?|supports?) (?:an? |the )?(?P<bare>{_TOKENS})(?= (?:to|for)\b|[.;]|\Z)",
    rf"{_PN}, {_LIST}, {_BE} {_ADDED} (?:to|in|for) (?:the )?{_TO_LIST}",
    rf"{_TO_LIST} (?:now (?:has|have)|gained|has gained|have gained) {_LIST} support\b",
    rf"the following (?:functions?|methods?) now (?:support|accept) {_PN} {_LIST}: {_TO_LIST}",
    rf"{_TO_LIST} (?:now supports?|now allows?)\b[^.]*\bvia (?:the |an? )?(?:new )?(?:{_PN} )?{_LIST}(?: {_PN})?",
    rf"available via (?:the |an? )?(?:new )?{_PN} {_LIST} {_TO}",
    rf"^(?:new |the |an? )?{_LIST} {_PN}(?: option| added)* {_TO}(?= (?:functions?|methods?)?\.?\Z|\.?\Z|\. )",
    rf"\bnew {_LIST} {_PN}",
    rf"^(?:the )?{_PN} {_LIST} {_BE} {_ADDED} (?:to|and|for) [a-z]",
    rf"\bnew {_PN} (?:is|are) {_LIST}",
    rf"(?:several|many|additional)[^.{_ANY}]* functions? now (?:support|accept) (?:an? |the )?{_LIST} {_PN}",
)
OF_THEIRS = re.compile(
    rf"(?:^|{_ADD} )an? (?:new )?(?:{_PN} )?{_LIST}(?: {_PN})? (?:to|for|in) (?:their|its) {_TO_LIST}"
    r" (?:class)?(?:methods?|functions?|constructors?)",
    re.IGNORECASE,
)
"""`A T argument to their T methods`, below a lead that says whose."""
THE_FOLLOWING = _compiled(
    rf"\b(?:following|these)\b[^.{_ANY}]*\b(?:functions?|methods?|classes)\b[^.{_ANY}]*"
    rf" (?:{_GAINED}|supports?|accepts?|takes?|offers?)(?: now)? {_FREE}(?:{_PN},? {_LIST}|(?P<list2>{_TOKENS}) {_PN}"
    rf"|(?P<list3>{_TOKENS})\s*(?:[.:]|\Z))",
    rf"{_LIST} {_PN}:? {_BE} (?:{_ADDED}|supported|accepted) (?:to|in|by|for) (?:the )?(?:following|these)\b",
    rf"{_PN},? {_LIST} {_BE} (?:{_ADDED}|supported|accepted) (?:to|in|by|for) (?:the )?(?:following|these)\b",
    rf"{_ADD} {_A}{_FREE}(?:{_PN},? {_LIST}|(?P<list2>{_TOKENS}) {_PN}) (?:to|in|for) (?:the )?(?:following|these)\b",
)
"""The lead of a list of what got a parameter."""
LEAD_OF = re.compile(
    rf"\bmethods? (?:of|in|on|to|for) (?:the )?(?:class )?(?P<in>{MARK})"
    rf"|(?P<in2>{MARK})(?: class| objects?| instances?| distributions?)? (?:now )?(?:{_GAINED}|supports?|exposes?)\b"
    r"[^.]*\bmethods?\b",
    re.IGNORECASE,
)
"""The lead of a list of methods: whose they are."""
LEAD_IN = re.compile(
    rf"\b(?:to|in|into|of) (?:the )?(?:new )?(?P<in>{MARK})(?: {_MODULE})?\s*[:.]?\s*\Z"
    rf"|\bnew (?P<in2>{MARK}) {_MODULE}\b",
    re.IGNORECASE,
)
"""The lead of a list of functions or classes: the module that they are in."""
LEAD_NOUN = re.compile(
    r"\b(?:new|following|additional|these) (?:[\w-]+ ){0,3}?(?P<noun>methods?|class(?:es)?|attributes?|propert(?:y|ies)"
    r"|modules?|exceptions?)\b(?! (?:of|for|to|in|on)\b)",
    re.IGNORECASE,
)
"""What the lead of a list calls its entries."""
IN_FIRST = re.compile(rf"^in (?:the )?(?P<in>{MARK})(?: {_MODULE})?,? ", re.IGNORECASE)
"""`In T, ...`: the module of a sentence."""
ADDED_TO = re.compile(rf"^{_LIST} (?:was|were) added to {_TO_LIST}", re.IGNORECASE)
ALSO_IN = re.compile(rf"^(?:these|they|affected functions) (?:include|are):? {_TO_LIST}", re.IGNORECASE)
_SORT = r"(?!for|in|of|to|with|and|class)[\w-]+ "
_MANY = r"(?:methods|functions|classes)\b"
NAMELY = re.compile(rf" (?:{_SORT})?{_MANY},? (?:including|namely):? (?P<to>{_TOKENS})", re.IGNORECASE)
SORT_OF = re.compile(rf" (?:(?:for |in )(?:the )?|{_SORT}){_MANY}", re.IGNORECASE)
"""Behind what seems to have got a parameter: it has some callables that did, which are not named."""
ALL_OF = re.compile(f" {_MANY}", re.IGNORECASE)
"""The same behind one name."""
MEMBERS_OF = re.compile(rf"(?:{_MANY} (?:in|of)|\b(?:version|variant|counterpart)s? of) (?:the )?\Z", re.IGNORECASE)
"""The same before a name."""
"""`Added T to the T sorting methods, including T`: what got it stands behind, if anywhere."""
OF_LEAD = re.compile(rf"{_START}{_ADD} {_A}{_FREE}{_LIST} (?:\w+ )?{_PN}(?! to\b)", re.IGNORECASE)
"""`Added T option`, below a lead that names one callable."""
OF_RESULT = re.compile(r".{0,40}\b(?:to|on|in) (?:the |its |their )?(?:\w+ )?(?:results?|returned)\b", re.IGNORECASE)
"""Behind what is added: part of what a callable returns."""
UNMARKED_PLACE = re.compile(rf"\b(?:to|in) the (?P<in>[a-z]\w*) {_MODULE}\b")
"""The place of something, in plain words."""
MANY = re.compile(r"several|many|additional", re.IGNORECASE)
OF_IT = re.compile(r"(?:the|this) (?:function|method|class) |it ", re.IGNORECASE)
OF_METHOD = re.compile(f"{MARK} methods? {MARK}", re.IGNORECASE)
"""`T method T`, as in `minimize method BFGS`: an option, no method of a class."""

# ---------------------------------------------------------------- sentences

SENTENCE = re.compile(rf"(?<=[.!?])\s+(?=[\"'(]?[A-Z{_ANY}])")
ASIDE = re.compile(
    rf" ?\([^()]*\bdeprecated\b[^()]*\)|, \(?default(?:s to)? {MARK}[,)]"
    rf"|(?<={MARK}) (?:in favou?r of|deprecates|supersedes|replaces) .*",
    re.IGNORECASE,
)
"""What a sentence says beside, of older things or of values."""
OLD = re.compile(
    r"\b(?:(?<!replaces the )deprecate[sd]?|removed|renamed|no longer|no effect|reverts?|reverted|(?<!-)(?:fix|fixes)"
    r"|(?:may|might|will) now(?! (?:also )?(?:accept|support|take)\b)|(?:is|are|was|were|been) fixed)\b|^fixed\b",
    re.IGNORECASE,
)
"""Sentences about what was there before."""
BETTER = re.compile(
    r"^(?:improve|enhance|faster|better|speed|performance|optimi[sz])"
    r"|\b(?:is|are|was|were|been) (?:\w+ly )?(?:improved|enhanced|extended|rewritten|optimi[sz]ed|faster)\b",
    re.IGNORECASE,
)
NEWS = re.compile(
    r"\bnew\b|\badd(?:s|ed|ing|itions?)?\b|introduc|\bgained\b|\badditional\b|now available", re.IGNORECASE
)
ALIAS = re.compile(
    r"(?:\b(?:is|are|as)|[-\u2013:,]) an? (?:[\w-]+ )?(?:alias|synonym)|\baliases (?:for|of|to)\b|\brenamed\b",
    re.IGNORECASE,
)
ANOTHERS = frozenset({"np", "numpy", "pd", "pandas", "pl", "polars", "sp", "scipy", "torch", "xp", "math", "cmath"})
"""Libraries that notes of others compare with."""
C_NAME = re.compile(r"(?:Py|NPY_|Npy|npy_)[A-Z]?\w*_\w+\Z")
"""Names of an interface in C."""
REFERENCE = re.compile(r"^(?:(?:(?:gh-|#)\d+[,\s]*)+:\s+|(?:\|\w+\|\s*)+)")
"""A number before what it is about, a label."""
LABEL = re.compile(r"^\|(?P<label>\w+)\|")
NEW_LABELS = frozenset({"added", "enhancement", "feature", "majorfeature", "new"})
"""Labels of entries, as scikit-learn writes them: `|Feature|`."""
NEW_MODULE = re.compile(rf"\bnew {MARK} {_MODULE}\b", re.IGNORECASE)
"""A heading: what is listed below it is new."""
PREFIX = re.compile(r"^(?:\[[^\]]*\]\s*)*(?P<kind>[A-Za-z]{3,8})(?:\([^)]*\))?!?:\s+")
"""`feat(x): ...`, as commits begin."""
NEW_PREFIXES = frozenset({"feat", "enh", "new"})
OTHER_PREFIXES = frozenset(
    {"bug", "build", "chore", "ci", "dep", "doc", "docs", "fix", "maint", "mnt", "perf", "refactor", "test", "tst"}
)
IS_DISTRIBUTION = re.compile(
    r"T (?:has been|was|is) (?:added|introduced|implemented) (?:to|for|which) (?:represent|model|implement)\w* "
    r"(?:an? |the )?"
    r"(?:(?!from |of |for |test)[\w()'\u2019-]+ ){0,6}distribution\b|"
    r"distribution (?:as|is implemented as|has been (?:added|implemented) as) T|distributions?, T"
    r"|distribution \(T\)|distribution (?:was|has been) added in T"
    r"|T,? (?:represents?|implements?|an?|the) (?:(?!from |of |for |test)[\w()'\u2019-]+ ){0,6}distribution\b"
)
NO_CALLABLE = re.compile(
    r"attribute|propert|module|package|namespace|variable|constant|backend|warning|\balias|field|var\b|vars\b"
    r"|boolean|slot|toggle",
    re.IGNORECASE,
)

NO_CALLABLE_NEXT = re.compile(r" (?:class )?(?:attribute|propert|variable|constant|field)", re.IGNORECASE)

# ---------------------------------------------------------------- headings

NEW_PART = re.compile(
    r"\b(?:new (?:\w+ )?(?:features?|functions?|functionality|methods?|class(?:es)?|modules?|apis?|additions?)"
    r"|features?|enhancements?|what'?s new(?!.*\d))\b|^(?:additions?|added|new)\Z"
)
OTHER_PART = re.compile(
    r"\b(?:deprecat\w*|remov\w*|expired|backwards?|incompatib\w*|compatibility|breaking|bugs?|fix(?:es|ed)?|performance"
    r"|security|internals?|developers?|documentation|docs?|builds?|build system|contributors?|authors?|highlights?"
    r"|tracked|known issues?|c[- ]api|not user[- ]facing|other changes|untracked|pull requests?|issues? closed)\b"
)

NO_NEWS_PART = re.compile(
    r"\b(?:tests?|testing|linting|maintenance|infrastructure|packaging|typing|type annotations?)\b"
)

# ---------------------------------------------------------------- names in plain words

PLAIN_NAME = re.compile(
    r"(?<![\w./@-])(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[a-z]\w*_\w+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+)"
    r"(?![\w/-]|\.\w)"
)
OWNER = re.compile(
    r"(?:(?<![\w./@-])(?=(?:[a-z]\w*\.)+[A-Z])"
    r"|(?<=\bto )|(?<=\bon )|(?<=\bof )|(?<=\bto a )|(?<=\bto the )|(?<=[a-z]/)|(?<= and ))"
    r"(?P<name>(?:[a-z]\w*\.)+[A-Z][a-z]\w+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+)(?![\w.-])"
)
PLAIN_PARAMETER = re.compile(
    r"^add(?:s|ed)? (?:an? |the )?(?:new |optional )*"
    r"(?!(?:keyword|named|positional|missing|extra|type|command|line|build)\b)"
    rf"(?P<name>[a-z][a-z0-9_]*) (?={_PN} (?:to|for) (?:the )?{MARK})",
    re.IGNORECASE,
)
FILE_NAME = re.compile(r"e\.g|i\.e|\w+\.(?:py|so|org|com|io|txt|toml|md|rst)")
PRODUCTS = frozenset(
    {"GitHub", "JavaScript", "NumPy", "OpenBLAS", "PyArrow", "PyPI", "PyTorch", "SciPy", "TensorFlow", "TorchScript"}
)
"""Words of that form that are no identifiers."""
