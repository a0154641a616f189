#!/usr/bin/env bash
# Packs the chart, and signs it if there is a key to sign with.
#
#   package.sh FOLDER
#
# CHART_KEY is the name or address of a GnuPG key, CHART_KEYRING the file to which it was exported with its
# secret part (gpg --export-secret-keys), CHART_PASSPHRASE_FILE a file with its passphrase, if it has one.
# CHART_KEY_URL, where the public key will be found, puts that and the fingerprint into the chart, where
# Artifact Hub looks for them. HELM is the program.
set -euo pipefail

if (($# != 1)); then
    echo "usage: $0 FOLDER" >&2
    exit 2
fi
folder=$1
repository=$(cd "$(dirname "$0")/../.." && pwd)
helm=${HELM:-helm}
if [[ -n ${CHART_KEY-} && ! -r ${CHART_KEYRING-} ]]; then
    echo "say CHART_KEYRING=FILE: gpg --export-secret-keys '$CHART_KEY' >FILE" >&2
    exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R "$repository/charts/kubewarm" "$work/kubewarm"
mkdir -p "$folder"

sign=()
if [[ -n ${CHART_KEY-} ]]; then
    sign=(--sign --key "$CHART_KEY" --keyring "$CHART_KEYRING")
    if [[ -n ${CHART_PASSPHRASE_FILE-} ]]; then
        sign+=(--passphrase-file "$CHART_PASSPHRASE_FILE")
    fi
    if [[ -n ${CHART_KEY_URL-} ]]; then
        fingerprint=$(gpg --homedir "$work" --batch --with-colons --show-keys "$CHART_KEYRING" 2>/dev/null |
            awk -F: '/^fpr/ { print $10; exit }')
        if [[ -z $fingerprint || ! $CHART_KEY_URL =~ ^https://[^[:space:]\"]+$ ]]; then
            echo "CHART_KEY_URL is an https URL, and $CHART_KEYRING holds a key" >&2
            exit 2
        fi
        # The annotations are what Chart.yaml ends with.
        cat >>"$work/kubewarm/Chart.yaml" <<ANNOTATION
  artifacthub.io/signKey: |
    fingerprint: $fingerprint
    url: $CHART_KEY_URL
ANNOTATION
    fi
fi
"$helm" package "$work/kubewarm" --destination "$folder" "${sign[@]}"
