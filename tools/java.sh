#!/bin/sh
# Looks for a Java 17+ runtime.  Where there is none and apt-get may be used, installs a headless one;
# otherwise says what to do and what is skipped.  Never fails: only the Spark part needs Java.
version() {
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}
for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java; do
    [ -n "$java" ] && command -v "$java" >/dev/null 2>&1 || continue
    found=$(version "$java")
    if [ -n "$found" ] && [ "$found" -ge 17 ]; then
        exit 0
    fi
done
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "No Java 17+ found: installing a headless runtime with apt-get."
    if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        openjdk-17-jre-headless procps >/dev/null; then
        exit 0
    fi
    echo "apt-get could not install it."
fi
echo "No Java 17+ found${found:+ (found version $found)}: the Spark part is skipped."
echo "To have it, install a JRE (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
exit 0
