#!/usr/bin/env python3
"""Posts a run's result to GitHub: an issue for a nightly run, or a comment on a pull request.

    github_post.py issue --title TITLE --label LABEL FILE
        comments on the open issue with this title and label, or opens one
    github_post.py comment --pull NUMBER --marker NAME FILE
        replaces the comment with this marker, or adds one

GitHub Actions sets GITHUB_TOKEN, GITHUB_REPOSITORY and GITHUB_API_URL. GITHUB_LOGIN is the account
of the token, whose comments may be replaced (default: the account of GitHub Actions).
"""

import argparse
import http.client
import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

# GitHub takes 65536 characters.
_MOST_CHARACTERS = 60_000
_LOGIN = "github-actions[bot]"
_PATIENCE_S = 60
_PAGE = 100
_MOST_PAGES = 30


def main() -> int:
    """Runs the command; prints an error and returns 1 if GitHub refuses."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    issue = commands.add_parser("issue")
    issue.add_argument("--title", required=True)
    issue.add_argument("--label", required=True)
    comment = commands.add_parser("comment")
    comment.add_argument("--pull", required=True, type=int)
    comment.add_argument("--marker", required=True)
    for command in (issue, comment):
        command.add_argument("file", type=Path, help="Markdown file to post")
    options = parser.parse_args()
    try:
        api = Api(os.environ)
        text = shortened(options.file.read_text(encoding="utf-8"))
        if options.command == "issue":
            url = post_issue(api, options.title, options.label, text)
        else:
            url = post_comment(api, options.pull, options.marker, text)
    except (ApiError, OSError, http.client.HTTPException, UnicodeDecodeError) as error:
        print(f"github: {error}", file=sys.stderr)
        return 1
    except (KeyError, TypeError, AttributeError) as error:
        print(f"github: unexpected response: {error!r}", file=sys.stderr)
        return 1
    print(f"posted {url}")
    return 0


class ApiError(Exception):
    """A request to GitHub failed; the message contains the reason."""


class _NowhereElse(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would send the token to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Returns None, which makes the redirect an error."""


class Api:
    """GitHub's REST interface, for one repository."""

    def __init__(self, environment: Any) -> None:
        missing = [n for n in ("GITHUB_TOKEN", "GITHUB_REPOSITORY") if not environment.get(n)]
        if missing:
            raise ApiError(f"{' and '.join(missing)} must be set, as in GitHub Actions")
        self._repository = environment["GITHUB_REPOSITORY"]
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", self._repository):
            raise ApiError(f"GITHUB_REPOSITORY {self._repository!r} is not of the form owner/name")
        base = environment.get("GITHUB_API_URL") or "https://api.github.com"
        parts = urllib.parse.urlsplit(base)
        # Only this machine may receive the token without encryption.
        if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost"):
            raise ApiError(f"GITHUB_API_URL {base!r} does not use https")
        self._base = base.rstrip("/")
        self._token = environment["GITHUB_TOKEN"]
        self._opener = urllib.request.build_opener(_NowhereElse)
        self.login = environment.get("GITHUB_LOGIN") or _LOGIN

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Returns the response to a request below `/repos/OWNER/NAME`.

        Raises:
          ApiError: GitHub does not respond, or responds with an error.
        """
        request = urllib.request.Request(  # noqa: S310  # the scheme was checked
            f"{self._base}/repos/{self._repository}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Accept": "application/vnd.github+json",
                "Content-Type": "application/json",
                "X-GitHub-Api-Version": "2022-11-28",
                "User-Agent": "common-benchmark-suite",
            },
        )
        try:
            with self._opener.open(request, timeout=_PATIENCE_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            words = error.read(2000).decode(errors="replace")
            raise ApiError(f"{method} {path}: {error.code} {words}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ApiError(f"{method} {path}: {error}") from error

    def every(self, path: str) -> Any:
        """Yields the items of a list, page by page."""
        joint = "&" if "?" in path else "?"
        for page in range(1, _MOST_PAGES + 1):
            items = self.call("GET", f"{path}{joint}per_page={_PAGE}&page={page}")
            yield from items
            if len(items) < _PAGE:
                return


def post_issue(api: Api, title: str, label: str, text: str) -> str:
    """Opens an issue, or comments on an open one with this title and label; returns its URL."""
    query = urllib.parse.urlencode({"state": "open", "labels": label})
    for issue in api.every(f"issues?{query}"):
        # The list also contains pull requests.
        if issue["title"] == title and "pull_request" not in issue:
            posted = api.call("POST", f"issues/{issue['number']}/comments", {"body": text})
            return str(posted["html_url"])
    posted = api.call("POST", "issues", {"title": title, "body": text, "labels": [label]})
    return str(posted["html_url"])


def post_comment(api: Api, pull: int, marker: str, text: str) -> str:
    """Adds a comment to a pull request, or replaces the one with this marker; returns its URL."""
    hidden = f"<!-- {re.sub(r'[^A-Za-z0-9_.:-]', '', marker)} -->"
    body = {"body": f"{hidden}\n{text}"}
    for comment in api.every(f"issues/{pull}/comments"):
        # Other users can also write the marker into a comment.
        ours = comment["user"]["login"] == api.login
        if ours and str(comment["body"]).startswith(hidden):
            return str(api.call("PATCH", f"issues/comments/{comment['id']}", body)["html_url"])
    return str(api.call("POST", f"issues/{pull}/comments", body)["html_url"])


def shortened(text: str) -> str:
    """Returns a text cut to GitHub's limit, at a line if possible, with a note if it was cut."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    beginning = text[:_MOST_CHARACTERS]
    kept = beginning.rpartition("\n")[0] or beginning
    return f"{kept}\n\n(truncated; the full text has {len(text)} characters)\n"


if __name__ == "__main__":
    sys.exit(main())
