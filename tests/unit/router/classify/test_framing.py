"""What only frames a task is dropped, whoever wrote it around the task; the task never is."""

import json

import pytest

from router.classify.framing import MAX_ROUNDS, without_framing
from router.classify.framing_model import MAX_SENTENCES

TASKS = (
    "The login handler leaks memory",
    "Rename the variable tmp to total",
    "Migrate the whole application to microservices, without downtime",
    "TypeError: unsupported operand\n\nSteps:\n1. open the page\n2. click twice",
)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "framing",
    [
        "Please {}",
        "Hi team,\n\n{}\n\nThanks!\nBob",
        "Help me with this.\n\n{}",
        "We have the following ticket:\n\n{}",
        "# Request\n\n{}\n\n---\n_Sent from my phone_",
        "Context: none given.\nQuestion: {}",
        "[11:02] omar: hi there\n[11:03] omar: {}",
        "Go through these points in order and tell me once you have finished.\n\n{}",
        "(dictated on the way) okay so um {} and that's all for now",
        "**Details of the request**\n\n{}\n\n**Additional notes**\n\nNone.",
        "{}\n\nPS: it can wait until Friday.",
        "{} :pray: :pray:",
        'My manager wrote this to me: "{}"',
        "Ticket: ABC-12\nPriority: high\nAssignee: Ann Lee\n\n{}",
        "You are a helpful coding assistant.\n\n<task>\n{}\n</task>",
        "I would like you to do this: {}",
        "{}\n\nBest regards,\nAnn",
        "{}\n\nLet me know when you are done.",
        "Guten Morgen, wir haben folgendes Ticket:\n\n{}\n\nVielen Dank im Voraus",
        "大家好，我们收到了这个工单：\n\n{}",
        '<conversation><turn speaker="user">{}</turn></conversation>',
        "---\nname: nightly\nowner: infra\n---\n{}",
        "Quoting from an unheard-of channel:\n\n{}",
        "{}\n\nYours faithfully,\nJ. Smith",
        "{}\n\nDue: next Friday\nPoints: 10",
        "{}\n\nETA?",
    ],
)
def test_framing_is_dropped(framing: str, task: str) -> None:
    assert without_framing(framing.replace("{}", task)) == task


COURTESIES = (
    "Please {}",
    "Hi, {}",
    "Hello,\n{}",
    "{}\nThanks!",
    "please {}, thanks",
    "{}, please.",
    "{} Many thanks in advance!",
    "{} TIA",
    "{} Cheers, Anna",
)


@pytest.mark.parametrize(
    "task",
    [
        *TASKS,
        "What is mutualism? Give three examples.",
        "The tests fail on main, please fix the login bug",
        "Our page hangs. Please check it for SQL injection",
        "Rewrite our billing engine, and please make it fast",
        "Le site plante, merci de corriger la fuite",
        "The cache was slow. Thanks to Redis it is fast",
        "trim, screen, stir, swim, compete, mix",
        "Write a poem of thanks",
    ],
)
def test_courtesies_change_nothing_of_what_is_read(task: str) -> None:
    """Neither what is asked behind a courtesy nor anything beside it is lost."""
    read = without_framing(task)
    assert read.split()[-2:] == task.rstrip(".").split()[-2:]
    assert [without_framing(courtesy.replace("{}", task)) for courtesy in COURTESIES] == (
        [read] * len(COURTESIES)
    )


@pytest.mark.parametrize(
    ("text", "ask"),
    [
        ("Could you please sort this list?", "sort this list"),
        ("Could you help me with this? How do I sort a list?", "How do I sort a list?"),
    ],
)
def test_a_request_put_as_a_question_is_a_request(text: str, ask: str) -> None:
    assert without_framing(text) == ask


def test_a_text_within_objects_or_a_section_of_xml_is_what_they_wrap() -> None:
    task = "Rename the retry helper and update its callers"
    nested = {"type": "request", "payload": {"text": task}, "locale": "en"}
    assert without_framing(json.dumps(nested)) == task
    assert without_framing(f"<query><![CDATA[{task}]]></query>") == task


def test_a_text_wrapped_in_json_is_what_it_wraps() -> None:
    wrapped = '{"role": "user", "content": "Rename the variable", "priority": 1}'
    assert without_framing(wrapped) == "Rename the variable"
    config = '{"debug": true, "level": "info"}'
    assert without_framing(config) == config[2:-2]


def test_of_messages_the_users_is_what_they_wrap() -> None:
    task = "Rename the retry helper"
    rules = {"role": "system", "content": "You help the guests of a small hotel by the sea."}
    messages = [rules, {"role": "user", "content": task}]
    assert without_framing(json.dumps(messages)) == task
    assert without_framing(json.dumps({"messages": messages})) == task
    assert without_framing("\n".join(map(json.dumps, messages))) == task


@pytest.mark.parametrize("lead", ["[HARBOR-77] ", "ok so ", "Hi Sam, "])
def test_a_few_words_that_lead_to_a_task_are_dropped(lead: str) -> None:
    assert without_framing(f"{lead}Rename the helper") == "Rename the helper"


@pytest.mark.parametrize(
    "text", ["In Java, How do I sort a list?", "My Android app crashes", "As Ruby users we need it"]
)
def test_a_task_is_not_cut_at_a_name(text: str) -> None:
    assert without_framing(text) == text


def test_of_framing_alone_the_part_with_most_words_of_its_own_stays() -> None:
    text = "Help me with this.\n\nAnyone can read it by the number\n\nRegards,\nTom"
    assert without_framing(text) == "Anyone can read it by the number"


def test_a_quote_is_what_it_quotes() -> None:
    assert without_framing("> Rename the\n> variable") == "Rename the\nvariable"


@pytest.mark.parametrize(
    "text",
    [
        *TASKS,
        "Help me",
        "Say hello",
        "Thanks",
        "yes",
        "What does this file do?",
        "Write tests for it",
        "Explain this:\n\nx = [y]\nprint(x)",
        "",
    ],
)
def test_what_asks_stays(text: str) -> None:
    assert without_framing(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "so um " * 5_000,
        "**" * 9_000,
        '": "' * 2_500,
        ":a" * 9_000,
        "Hi. " * 5_000,
        "\n" * 50_000,
        "> " * 9_000,
        "請" * 9_000,
        ":::" * 999,
    ],
)
def test_odd_texts_end(text: str) -> None:
    assert len(without_framing(text)) <= len(text)


def test_it_looks_at_a_bounded_number_of_sentences() -> None:
    many = "Hello there. " * (MAX_ROUNDS * MAX_SENTENCES + 1)
    assert without_framing(f"{many}Rename the variable") != "Rename the variable"


@pytest.mark.parametrize(
    "ask",
    [
        "fix: flake8 E501 line too long in settings.py line 88",
    ],
)
def test_a_last_sentence_with_words_of_its_own_stays(ask: str) -> None:
    assert without_framing(ask) == ask


def test_a_last_sentence_longer_than_the_stretch_that_is_tried_first_is_framing_too() -> None:
    last = (
        "Let me know when you are done, and please tell me if you need anything else from me for it"
    )
    assert without_framing(f"Rename tmp to total. {last}, {last.lower()}.") == "Rename tmp to total"


@pytest.mark.parametrize(
    "task",
    [
        "Fix the XSS in the comment box",
        "Explain how Kafka differs from Pulsar",
        "Move from Redis to Valkey",
        "Run it every Monday at noon",
        "Convert the chart to SVG format",
        "Why does Slack crash at startup?",
    ],
)
def test_a_name_amid_a_task_is_no_goodbye(task: str) -> None:
    assert without_framing(f"{task}.") == task


def test_a_goodbye_may_follow_without_a_full_stop() -> None:
    task = "Fix the XSS in the comment box"
    assert without_framing(f"{task} Thanks a bunch, and no rush!") == task


def test_what_names_security_is_no_framing() -> None:
    for text in (
        "We found an auth bypass. Details follow.\n\nGET /admin returns 200",
        "You are a security reviewer.\n\nLook at app.py",
    ):
        assert without_framing(text).startswith(text.partition(".")[0])


@pytest.mark.parametrize("right", ["remove", "reduce", "default"])
def test_a_slip_makes_no_framing_of_a_task(right: str) -> None:
    slip = right[:2] + right[3:]
    task = "chore: {} splitters in the gateway"
    assert without_framing(task.format(slip)).endswith(f"{slip} splitters in the gateway")


def test_a_name_is_no_slip() -> None:
    assert without_framing("Hi Mave,\n\nThe login handler leaks memory") == TASKS[0]


MATTER = "Split the billing module into separate services, and move its data without downtime."


@pytest.mark.parametrize(
    "talk",
    [
        "[09:14] mia: morning all\n[09:15] jonas: hey\n[09:16] mia: @bot {}\n[09:16] jonas: :+1:",
        "[10/3/25, 18:02] Ana: ya llegaste??\n[10/3/25, 18:03] Leo: sí\n[10/3/25, 18:04] Ana: {}",
        "User: hi\nAssistant: Hello! How can I help you today?\nUser: {}\nAssistant:",
        "Human: hi\n\nAI: Tell me more about it, and take as long as you like.\n\nHuman: {}",
    ],
)
def test_of_a_talk_the_matter_stays(talk: str) -> None:
    assert without_framing(talk.replace("{}", MATTER)) == without_framing(MATTER)


@pytest.mark.parametrize(
    "text",
    [
        "[12:00:01] ERROR: lost\n[12:00:02] INFO: a long line of a log, which asks for nothing\n"
        "[12:00:03] ERROR: lost again. Find out why.",
        "[12:01] ann: it is down, and I have no idea since when\n[12:02] bob: oh\n[12:03] ann: yes"
        "\n\nFind out why.",
    ],
)
def test_what_is_asked_behind_a_log_or_a_talk_stays(text: str) -> None:
    assert "Find out why" in without_framing(text)


def test_two_lines_are_no_talk() -> None:
    text = "User: the page is blank\nAgent: which page, and since when?"
    assert "which page" in without_framing(text)


def test_a_template_before_the_task_is_dropped() -> None:
    about = "<environment>\nShell: bash\nModel context: 128k\n</environment>\n\n"
    notes = "<notes>\nBe brief.\n</notes>\n\n"
    assert without_framing(about + notes + MATTER) == without_framing(MATTER)
    wrapped = f"<assignment>\n{MATTER}\n</assignment>\n<hints>none</hints>"
    assert "billing" in without_framing(wrapped)
    assert "billing" in without_framing(f"<task>\n{MATTER}\n</task>\n\nThanks!")
    unclosed = "<environment>\nShell: bash\n" + MATTER
    assert "billing" in without_framing(unclosed)


@pytest.mark.parametrize(
    "before",
    [
        "Good morning! It has been raining for nine days straight, and the dog refuses to go out. "
        "How are you? Anyway, to the matter: ",
        "Bonjour à tous,\n\nC'est la première fois que j'écris ici, alors veuillez m'excuser si ce "
        "n'est pas le bon endroit. Voici donc ma demande :\n\n",
    ],
)
def test_small_talk_goes_with_what_ends_it(before: str) -> None:
    assert without_framing(before + MATTER) == without_framing(MATTER)


def test_what_is_framing_behind_a_task_takes_none_of_it_along() -> None:
    text = f"{MATTER}\n\nAdditional notes\n\nThanks a lot, and see you tomorrow!"
    assert "billing" in without_framing(text)
