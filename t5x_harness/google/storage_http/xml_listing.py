"""Listings of the XML API, in both versions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from urllib.parse import quote
from xml.sax.saxutils import escape

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import Listing, ListingQuery, StoredObject
from t5x_harness.google.storage_http.answers import Answer
from t5x_harness.google.storage_http.parameters import listing_of
from t5x_harness.google.storage_http.resources import rfc3339, xml_etag_of
from t5x_harness.google.storage_http.xml_multipart import document

_NAMESPACE = "http://doc.s3.amazonaws.com/2006-03-01"
"""The namespace of listings; other documents have another one."""


def list_bucket(store: ObjectStore, bucket: str, given: Mapping[str, str]) -> Answer:
    """Returns a page of the objects of a bucket.

    Args:
      store: the store.
      bucket: the bucket.
      given: the parameters. ``list-type=2`` chooses the second version, whose pages continue at a
        ``continuation-token``; pages of the first version continue behind a ``marker``.

    Raises:
      NoSuchResource: the bucket does not exist.
      Invalid: a parameter is invalid.
    """
    encoding = given.get("encoding-type", "")
    if encoding not in ("", "url"):
        raise Invalid(f"Invalid Encoding Method specified in Request: {encoding}")
    second = given.get("list-type") == "2"
    query = _query(given, second)
    page = store.list(bucket, query) if query.max_results else Listing(())  # the JSON API allows no query for 0 objects
    write = _Writer(url=encoding == "url")
    found = [_contents(write, it, owner=second and given.get("fetch-owner") == "true") for it in page.objects]
    found += [f"<CommonPrefixes>{write('Prefix', each)}</CommonPrefixes>" for each in page.prefixes]
    return document(
        "ListBucketResult",
        _NAMESPACE,
        f"<Name>{escape(bucket)}</Name>",
        write("Prefix", query.prefix),
        write("Delimiter", query.delimiter) if query.delimiter else "",
        f"<MaxKeys>{query.max_results}</MaxKeys>",
        "<EncodingType>url</EncodingType>" if encoding else "",
        *(_second(write, given, page) if second else _first(write, given, page)),
        f"<IsTruncated>{str(bool(page.next_page)).lower()}</IsTruncated>",
        *found,
    )


def _query(given: Mapping[str, str], second: bool) -> ListingQuery:
    """Returns the query; the number of results is read here because it may be 0."""
    names = {"prefix": given.get("prefix", ""), "delimiter": given.get("delimiter", "")}
    try:
        most = int(given.get("max-keys") or "1000")
    except ValueError:
        most = -1
    if most < 0:
        raise Invalid(f"Invalid argument: max-keys has to be a number, not {given.get('max-keys')!r}")
    query = dataclasses.replace(listing_of(names), max_results=min(most, 1000))
    if second and given.get("continuation-token"):
        return dataclasses.replace(query, page_token=given["continuation-token"])
    return dataclasses.replace(query, start_offset=_behind(given.get("start-after" if second else "marker", ""), query))


def _behind(name: str, query: ListingQuery) -> str:
    """Returns the first name behind a name, or behind all names with a prefix."""
    if not name:
        return ""
    cut = name.find(query.delimiter, len(query.prefix)) if query.delimiter and name.startswith(query.prefix) else -1
    if cut < 0 or cut + len(query.delimiter) != len(name):
        return f"{name}\0"
    kept = name.rstrip("\U0010ffff")  # the last character of Unicode
    if not kept:
        return name + "\U0010ffff" * 256  # longer than any name
    last = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if last == 0xD800 else last)  # there is no character in between


def _first(write: _Writer, given: Mapping[str, str], page: Listing) -> list[str]:
    parts = [write("Marker", given.get("marker", ""))]
    if page.next_page:
        names = [*(it.name for it in page.objects[-1:]), *page.prefixes[-1:]]
        parts.append(write("NextMarker", max(names, key=str.encode)))
    return parts


def _second(write: _Writer, given: Mapping[str, str], page: Listing) -> list[str]:
    parts = [f"<KeyCount>{len(page.objects) + len(page.prefixes)}</KeyCount>"]
    if given.get("start-after"):
        parts.append(write("StartAfter", given["start-after"]))
    if given.get("continuation-token"):
        parts.append(f"<ContinuationToken>{escape(given['continuation-token'])}</ContinuationToken>")
    if page.next_page:
        parts.append(f"<NextContinuationToken>{escape(page.next_page)}</NextContinuationToken>")
    return parts


@dataclasses.dataclass(frozen=True)
class _Writer:
    """Writes elements with names; ``encoding-type=url`` is for names that XML cannot hold."""

    url: bool

    def __call__(self, element: str, name: str) -> str:
        return f"<{element}>{quote(name, safe='/') if self.url else escape(name)}</{element}>"


def _contents(write: _Writer, it: StoredObject, *, owner: bool) -> str:
    fields = (
        f"<Generation>{it.generation}</Generation><MetaGeneration>{it.metageneration}</MetaGeneration>"
        f"<LastModified>{rfc3339(it.updated)}</LastModified><ETag>&quot;{xml_etag_of(it)}&quot;</ETag><Size>{it.size}</Size>"
    )
    who = f"<Owner><ID>{PRODUCT}</ID></Owner>" if owner else ""
    return f"<Contents>{write('Key', it.name)}{fields}{who}</Contents>"
