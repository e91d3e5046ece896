#!/bin/sh
# Looks for a Chromium.  Where there is none and apt-get may be used, installs it; otherwise says what
# to do and what is skipped.  Never fails: with CHRONICLE_BROWSER=required the tests themselves do.
for browser in "${CHRONICLE_CHROMIUM:-chromium}" chromium chromium-browser google-chrome; do
    if command -v "$browser" >/dev/null 2>&1; then
        exit 0
    fi
done
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "No Chromium found: installing it with apt-get."
    if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends chromium fonts-dejavu-core >/dev/null; then
        exit 0
    fi
    echo "apt-get could not install it."
fi
echo "No Chromium found: the tests of the console in a browser are skipped."
echo "To have them, install one (Debian: apt-get install chromium) or name it in CHRONICLE_CHROMIUM."
exit 0
