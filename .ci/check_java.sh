# Silent when Java 17 or later is found; else says what was found and how to get it.
java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
found=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
[ "${found:-0}" -ge 17 ] && exit 0
echo "Spark 4 needs Java 17 or 21; found: ${found:-none} ($java)."
echo "Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless     macOS: brew install openjdk@17"
echo "Then set JAVA_HOME to it and run the same command again."
exit 1
