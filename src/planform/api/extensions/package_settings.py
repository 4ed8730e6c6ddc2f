"""What goes with packages: how their programs run, how their images are treated, and what depends on what."""

from __future__ import annotations

from planform.api.extensions.builtin_parts import deployment_spec
from planform.api.extensions.vocabulary import (
    column,
    condition_column,
    crd,
    flag,
    labels,
    many,
    name_ref,
    number,
    record,
    root,
    status,
    text,
    version,
)
from planform.api.kinds import Object
from planform.api.names import IMAGE_CONFIG, LOCK, PACKAGES_GROUP, RUNTIME_CONFIG


def deployment_runtime_config() -> Object:
    """How the programs of packages are run."""
    metadata = record(
        "Names and labels.",
        {
            "name": text("A name."),
            "labels": labels("Labels."),
            "annotations": labels("Annotations."),
        },
    )
    spec = record(
        "How to run it.",
        {
            "deploymentTemplate": record(
                "The program: of its specification, replicas apply, and args, env and memory limits of the container"
                " package-runtime.",
                {"metadata": metadata, "spec": deployment_spec("A Deployment's specification.")},
            ),
            "serviceTemplate": record("Its service, on Kubernetes.", {"metadata": metadata}),
            "serviceAccountTemplate": record("Its account, on Kubernetes.", {"metadata": metadata}),
        },
    )
    schema = root(
        "How the programs of packages that name it are run.", {"spec": spec, "status": status("Nothing yet.")}
    )
    versions = [version("v1beta1", schema, [], storage=True)]
    return crd(PACKAGES_GROUP, RUNTIME_CONFIG.kind, versions, categories=["crossplane"])


def image_config() -> Object:
    """How images whose names begin alike are treated."""
    match = record(
        "Which images.",
        {
            "type": text("How names are compared.", one_of=["Prefix"], default="Prefix"),
            "prefix": text("What the name of an image begins with.", min_length=1),
        },
        required=["prefix"],
    )
    key = record(
        "A public key.",
        {
            "secretRef": record(
                "The Secret that holds it.",
                {"name": text("Name of the Secret."), "key": text("Key in the Secret.")},
                required=["name", "key"],
            ),
            "hashAlgorithm": text("How the image was hashed.", default="sha256"),
        },
        required=["secretRef"],
    )
    identity = record(
        "Somebody who may have signed.",
        {
            "issuer": text("Who vouches for the signer."),
            "issuerRegExp": text("The same, as a regular expression."),
            "subject": text("The signer."),
            "subjectRegExp": text("The same, as a regular expression."),
        },
    )
    keyless = record(
        "Signers that a certificate of theirs names, not a key; not supported here.",
        {
            "identities": many("Any one of these.", identity),
            "insecureIgnoreSCT": flag("Whether to do without the time stamp of a certificate log."),
        },
        required=["identities"],
    )
    attestation = record(
        "One statement.",
        {"name": text("A name for it."), "predicateType": text("What kind of statement it is.")},
        required=["name", "predicateType"],
    )
    authority = record(
        "Somebody whose signature counts.",
        {
            "name": text("A name for it."),
            "key": key,
            "keyless": keyless,
            "attestations": many("Statements about the image that must be signed too; not checked here.", attestation),
        },
        required=["name"],
    )
    spec = record(
        "Which images, and how they are treated.",
        {
            "matchImages": many("The images that are meant.", match, minimum=1),
            "registry": record(
                "How to log in.",
                {"authentication": record("The login.", {"pullSecretRef": name_ref("The Secret that holds it.")})},
            ),
            "verification": record(
                "Who must have signed them.",
                {
                    "provider": text("What checks signatures.", one_of=["Cosign"]),
                    "cosign": record("Whose signatures count.", {"authorities": many("Any one of these.", authority)}),
                },
                required=["provider"],
            ),
            "rewriteImage": record(
                "Where they are had from instead.", {"prefix": text("What to begin their names with.")}
            ),
            "runtime": record(
                "How they are run.",
                {
                    "configRef": record(
                        "A runtime configuration.",
                        {
                            "apiVersion": text("Its API version.", default="pkg.crossplane.io/v1beta1"),
                            "kind": text("Its kind.", default="DeploymentRuntimeConfig"),
                            "name": text("Its name."),
                        },
                        required=["name"],
                    )
                },
            ),
        },
        required=["matchImages"],
    )
    schema = root(
        "How images whose names begin alike are treated.",
        {"spec": spec, "status": status("Nothing yet.")},
        required=["spec"],
    )
    versions = [version("v1beta1", schema, [], storage=True)]
    return crd(PACKAGES_GROUP, IMAGE_CONFIG.kind, versions, categories=["crossplane"])


def lock() -> Object:
    """Which packages are installed, and what they need."""
    dependency = record(
        "A package that is needed.",
        {
            "package": text("The package, without version."),
            "apiVersion": text("API version of its kind."),
            "kind": text("Its kind."),
            "type": text("Deprecated: its kind."),
            "constraints": text("Which versions fit."),
        },
        required=["package", "constraints"],
    )
    package = record(
        "An installed package.",
        {
            "name": text("The revision."),
            "apiVersion": text("API version of the package's kind."),
            "kind": text("The package's kind."),
            "type": text("Deprecated: the package's kind."),
            "source": text("The package, without version."),
            "version": text("Its tag, or its digest."),
            "dependencies": many("What it needs.", dependency),
        },
        required=["name", "source", "version", "dependencies"],
    )
    schema = root(
        "The packages that are installed, with all that they need.",
        {
            "packages": many("The packages.", package),
            "status": status("Whether all that is needed is there.", {"packages": number("How many there are.")}),
        },
    )
    columns = [condition_column("Resolved"), column("PACKAGES", ".status.packages", "integer")]
    return crd(
        PACKAGES_GROUP, LOCK.kind, [version("v1beta1", schema, columns, storage=True)], categories=["crossplane"]
    )
