"""Tasks in Python, which greet.mjs calls: python3 -m penstock worker -A tasks -Q greetings"""

from penstock import Penstock

app = Penstock("greetings")


@app.task(name="greet")
def greet(who):
    return "hello, %s" % who["name"]
