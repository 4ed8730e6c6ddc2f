"""Random values of templates: the same for an XR on every run, nobody else's to compute, and kept where they were."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from planform.builtin.go_templating import GoTemplating
from planform.builtin.go_templating.certificates import _rsa_pem
from planform.builtin.seeds import MARK, Keyring, KeyUnavailable, mark_for_moving, may_draw, seeding_of
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Resource, State
from planform.gotemplate.drawing import PublicStream, SeededStream
from planform.moving.random_values import marked

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
OWN, OTHER = b"k" * 32, b"o" * 32
TEMPLATE = """
apiVersion: v1
kind: Secret
metadata:
  annotations: {gotemplating.fn.crossplane.io/composition-resource-name: secret}
value: %s
"""


@dataclass
class Keys:
    ring: Keyring = field(default_factory=lambda: Keyring("own", SINCE, {"own": OWN, "other": OTHER}))
    lost: str = ""

    async def keyring(self, wanted: str, /) -> Keyring:
        if self.lost:
            raise KeyUnavailable(self.lost)
        return self.ring


def xr(uid: str = "u-1", *, created: str = "2026-02-01T00:00:00Z", mark: str = "", name: str = "one") -> Object:
    annotations = {MARK: mark} if mark else {}
    metadata = {"name": name, "namespace": "ns", "uid": uid, "creationTimestamp": created, "annotations": annotations}
    return {"apiVersion": "example.org/v1", "kind": "App", "metadata": metadata}


def answer(expression: str, obj: Object, keys: Keys | None) -> FunctionResponse:
    spec = {"source": "Inline", "inline": {"template": TEMPLATE % expression}}
    request = FunctionRequest(observed=State(Resource(obj)), input=spec)
    return asyncio.run(GoTemplating(keys).run(request, timeout=60))


def drawn(obj: Object, keys: Keys | None = None, expression: str = "{{ randAlphaNum 20 }}") -> str:
    response = answer(expression, obj, keys)
    assert response.fatal is None, response.fatal
    return str(response.desired.resources["secret"].resource["value"])


def test_an_xr_gets_the_same_value_on_every_run_and_another_gets_another() -> None:
    assert drawn(xr(), Keys()) == drawn(xr(), Keys())
    values = {drawn(xr("u-1"), Keys()), drawn(xr("u-2"), Keys()), drawn(xr(name="two"), Keys())}
    assert len(values) == 3


def test_the_value_cannot_be_had_without_the_key() -> None:
    keyed, local = drawn(xr(), Keys()), drawn(xr())
    other = Keys(Keyring("other", SINCE, {"other": OTHER}))
    assert len({keyed, local, drawn(xr(), other)}) == 3


def test_an_xr_that_is_older_than_the_key_keeps_its_value_and_is_told_of() -> None:
    old = xr(created="2025-06-01T00:00:00Z")
    assert drawn(old, Keys()) == drawn(old), "what it was given before there was a key"
    [told] = answer("{{ randAlphaNum 20 }}", old, Keys()).results
    assert "planform random rotate" in told.message
    assert answer("fixed", old, Keys()).results == []


def test_a_rotated_xr_is_made_new_values_with_the_key() -> None:
    old = xr(created="2025-06-01T00:00:00Z")
    rotated = xr(created="2025-06-01T00:00:00Z", mark="own/fresh")
    again = xr(created="2025-06-01T00:00:00Z", mark="own/fresher")
    assert len({drawn(old, Keys()), drawn(rotated, Keys()), drawn(again, Keys())}) == 3
    assert answer("{{ randAlphaNum 20 }}", rotated, Keys()).results == []


@pytest.mark.parametrize("created", ["2025-06-01T00:00:00Z", "2026-06-01T00:00:00Z"])
def test_an_xr_that_is_moved_keeps_its_value_under_another_uid(created: str) -> None:
    here = xr("u-1", created=created)
    mark = mark_for_moving(here, Keys().ring)
    elsewhere = Keys(Keyring("new", SINCE, {"new": b"n" * 32, "own": OWN}))
    there = xr("u-9", created="2026-08-01T00:00:00Z", mark=mark)
    assert drawn(there, elsewhere) == drawn(here, Keys())


def test_somebody_elses_mark_does_not_give_somebody_elses_value() -> None:
    victim = xr("u-1")
    thief = xr("u-2", mark="own/u-1", name="thief")
    assert drawn(thief, Keys()) != drawn(victim, Keys())


def test_without_the_key_nothing_random_is_rendered() -> None:
    lost = Keys(lost="the control plane's key is gone")
    refused = answer("{{ randAlphaNum 20 }}", xr(), lost).fatal
    assert refused is not None and "random values cannot be made: the control plane's key is gone" in refused.message
    assert drawn(xr(), lost, "fixed") == "fixed"
    unknown = answer("{{ uuidv4 }}", xr(mark="elsewhere/u-1"), Keys()).fatal
    assert unknown is not None and 'random key "elsewhere"' in unknown.message and "rotate" in unknown.message
    broken = answer("{{ uuidv4 }}", xr(mark="nonsense"), Keys()).fatal
    assert broken is not None and "KEY/IDENTITY" in broken.message


def test_outside_a_control_plane_it_is_said_whose_values_these_are() -> None:
    [told] = answer("{{ randAlphaNum 20 }}", xr(), None).results
    assert "not those that a control plane makes" in told.message


def test_a_worker_draws_the_same_as_would_be_drawn_here() -> None:
    long = "{{ $v := randAlphaNum 20 }}{{ range until 3000 }}{{ end }}{{ $v }}"
    assert drawn(xr(), Keys(), long) == drawn(xr(), Keys(), long)


def test_the_streams_repeat_themselves_and_know_whether_they_were_used() -> None:
    one, two = SeededStream(b"seed"), SeededStream(b"seed")
    assert not SeededStream(b"seed").drawn and not PublicStream("text").drawn
    assert [one.random() for _ in range(300)] == [two.random() for _ in range(300)]
    assert one.drawn and one.randbytes(5000) == two.randbytes(5000)
    assert SeededStream(b"seed").getrandbits(64) != SeededStream(b"seee").getrandbits(64)
    assert 0 <= one.getrandbits(3) < 8 and 3 <= one.randrange(3, 9) < 9
    public, plain = PublicStream("text"), random.Random("text")
    assert public.choices("abc", k=50) == plain.choices("abc", k=50)
    assert public.drawn and public.randbytes(9) == plain.randbytes(9)


@pytest.mark.parametrize(
    ("text", "draws"),
    [
        ("{{ randInt 1 2 }}", True),
        ("{{ genCA `a` 1 }}", True),
        ("{{ .spec.brand | upper }}", False),
        ("{{ now }}", False),
    ],
)
def test_templates_that_may_draw_are_known_by_their_text(text: str, draws: bool) -> None:
    assert may_draw(text) is draws


def test_the_seeding_of_an_xr_is_told() -> None:
    ring = Keys().ring
    assert seeding_of(xr(), ring) == "own"
    assert seeding_of(xr(created="2025-01-01T00:00:00Z"), ring) == "public"
    assert seeding_of(xr(mark="other/u"), ring) == "other"


def test_certificates_are_real_and_the_same_on_every_run() -> None:
    expression = (
        '{{ $ca := genCA "root" 365 }}{{ $c := genSignedCert "web" (list "10.0.0.1") (list "web.example.org") 30 $ca }}'
        "{{ list $ca.Cert $c.Cert $c.Key | toJson }}"
    )
    first = answer(expression, xr(), Keys())
    assert first.fatal is None, first.fatal
    assert first.desired == answer(expression, xr(), Keys()).desired
    authority, leaf, key = first.desired.resources["secret"].resource["value"]
    root, web = (x509.load_pem_x509_certificate(text.encode()) for text in (authority, leaf))
    web.verify_directly_issued_by(root)
    assert web.not_valid_before_utc == datetime(2026, 2, 1, tzinfo=UTC)
    assert (web.not_valid_after_utc - web.not_valid_before_utc).days == 30
    names = web.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["web.example.org"]
    private = load_pem_private_key(key.encode(), None)
    assert private.public_key() == web.public_key()


@pytest.mark.parametrize("kind", ["ecdsa", "ed25519"])
def test_private_keys_are_the_same_on_every_run(kind: str) -> None:
    expression = f'{{{{ genPrivateKey "{kind}" | toJson }}}}'
    key = drawn(xr(), Keys(), expression)
    load_pem_private_key(key.encode(), None)
    assert key == drawn(xr(), Keys(), expression) != drawn(xr("u-2"), Keys(), expression)


@pytest.mark.parametrize(
    "expression",
    [
        '{{ genPrivateKey "rsa" | toJson }}',
        '{{ (genCA "root" 365).Cert | toJson }}',
        '{{ (genSelfSignedCert "web" list list 365).Key | toJson }}',
    ],
)
def test_keys_that_take_long_are_not_made_on_the_loop(expression: str) -> None:
    before = _rsa_pem.cache_info()
    fresh = xr(f"uid of {expression}")
    assert "PEM" not in (made := drawn(fresh, Keys(), expression)) and "-----BEGIN" in made
    assert _rsa_pem.cache_info() == before, "a worker made it"


def test_hashes_of_passwords_fit_and_are_the_same_on_every_run() -> None:
    bcrypt = pytest.importorskip("bcrypt")
    found = drawn(xr(), Keys(), '{{ htpasswd "ann" "secret" }}')
    user, _, hashed = found.partition(":")
    assert user == "ann" and bcrypt.checkpw(b"secret", hashed.encode())
    assert found == drawn(xr(), Keys(), '{{ htpasswd "ann" "secret" }}')
    assert drawn(xr(), Keys(), '{{ htpasswd "a:b" "x" | quote }}') == "invalid username: a:b"


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ('{{ genPrivateKey "dsa" }}', "makes no dsa keys"),
        ('{{ genSignedCert "a" list list 1 "ca" }}', "the authority must be"),
        ('{{ (genSelfSignedCert "a" (list "nope") list 1).Cert }}', "nope is not an IP address"),
        ('{{ buildCustomCert "%" "" }}', "unable to decode base64 certificate"),
    ],
)
def test_what_cannot_be_made_is_told(expression: str, problem: str) -> None:
    refused = answer(expression, xr(), Keys()).fatal
    assert refused is not None and problem in refused.message


def test_only_xrs_that_may_have_drawn_something_are_marked_when_they_are_moved() -> None:
    names = {"kind": "App", "plural": "apps"}
    versions = [{"name": "v1", "served": True, "referenceable": True}]
    xrd = {
        "apiVersion": "apiextensions.crossplane.io/v2",
        "kind": "CompositeResourceDefinition",
        "metadata": {"name": "apps.example.org"},
        "spec": {"group": "example.org", "names": names, "versions": versions},
    }

    def revision(name: str, template: str) -> Object:
        step = {"input": {"source": "Inline", "inline": {"template": template}}}
        kind = {"apiVersion": "apiextensions.crossplane.io/v1", "kind": "CompositionRevision"}
        return {**kind, "metadata": {"name": name}, "spec": {"pipeline": [step]}}

    def of(name: str, chosen: str) -> Object:
        return {**xr(name=name), "spec": {"crossplane": {"compositionRevisionRef": {"name": chosen}}}}

    objects = [xrd, revision("draws", "{{ uuidv4 }}"), revision("plain", "x"), of("a", "draws"), of("b", "plain")]
    marks = [each["metadata"].get("annotations", {}).get(MARK) for each in marked(objects, Keys().ring)]
    assert marks == [None, None, None, "own/u-1", None]
