"""The XML API: objects by their address, listings of a bucket, and multipart uploads."""

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Mapping
from urllib.parse import quote, unquote_to_bytes
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.storage.errors import Invalid, NoSuchResource
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.streams import ObjectReader
from t5x_harness.google.storage.values import (
    Listing,
    ListingQuery,
    MultipartUpload,
    ObjectFields,
    Preconditions,
    SourceObject,
    StoredObject,
)
from t5x_harness.google.storage_http.answers import Answer, media_headers
from t5x_harness.google.storage_http.calls import inline_or_in_thread, open_checked, with_entity_tags, write_object
from t5x_harness.google.storage_http.json_api import NotAllowed, NotEmulated
from t5x_harness.google.storage_http.request import StorageRequest
from t5x_harness.google.storage_http.resources import (
    HEADER_FIELDS,
    checksums_of,
    hash_header,
    header_text,
    listing_of,
    number_of,
    rfc3339,
    xml_etag_of,
)
from t5x_harness.google.storage_http.upload_api import resume_upload

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_LISTING_NAMESPACE = "http://doc.s3.amazonaws.com/2006-03-01"
_SUFFIX = ".storage.googleapis.com"
_META = "x-goog-meta-"
_NOT_EMULATED = frozenset(
    "acl billing compose cors defaultObjectAcl encryption encryptionConfig lifecycle location logging policy restore "
    "retention storageClass tagging versioning versions website websiteConfig".split()
)
"""Parameters that are refused: without their effect, a request would read or write the wrong thing."""

_ASKED = ("response-content-disposition", "response-content-type")


async def answer_xml(store: ObjectStore, request: StorageRequest) -> Answer | ObjectReader:
    """Routes a call of the XML API: ``/BUCKET/NAME``, or the bucket in the host's name."""
    host = request.host.partition(":")[0].lower()
    segments = list(request.segments)
    bucket = host.removesuffix(_SUFFIX) if host.endswith(_SUFFIX) else segments.pop(0)
    name = "/".join(segments)
    if not bucket:
        raise NotEmulated("the list of buckets of the XML API")
    parameters = request.parameters
    if asked := _NOT_EMULATED & set(parameters):
        raise NotEmulated(f"?{min(asked)} of the XML API")
    if not name:
        return await _bucket(store, request, bucket)
    if "uploads" in parameters or "uploadId" in parameters:
        return await _upload_of_parts(store, request, bucket, name)
    if "upload_id" in parameters or (request.method == "POST" and "x-goog-resumable" in request.headers):
        return await _upload_resumably(store, request, bucket, name)
    match request.method:
        case "GET" | "HEAD":
            conditions = _conditions(request, generation=number_of(parameters, "generation"))
            return await inline_or_in_thread(open_checked, store, bucket, name, conditions, request.headers, xml=True)
        case "PUT" if "x-goog-copy-source" in request.headers:
            return await _copy(store, request, bucket, name)
        case "PUT":
            return await _put(store, request, bucket, name)
        case "DELETE":
            given = _conditions(request, generation=number_of(parameters, "generation"))
            conditions = await with_entity_tags(store, bucket, name, given, request.headers)
            await asyncio.to_thread(store.delete, bucket, name, conditions)
            return Answer(204)
    raise NotAllowed(request)


def headers_of_answer(request: StorageRequest) -> Mapping[str, str]:
    """Returns the headers that a request for an object asks for instead of the object's own."""
    given = {name.removeprefix("response-"): value for name, value in request.parameters.items() if name in _ASKED}
    return {name: header_text(value) for name, value in given.items()}


async def _bucket(store: ObjectStore, request: StorageRequest, bucket: str) -> Answer:
    if request.method == "HEAD":
        await asyncio.to_thread(store.bucket, bucket)
        return Answer(200)
    if request.method != "GET":
        raise NotEmulated(f"{request.method} of a bucket by the XML API")
    if "uploads" in request.parameters:
        uploads = [
            _xml(Upload=[_xml(Key=it.name, UploadId=it.id, Initiated=rfc3339(it.started))])
            for it in await asyncio.to_thread(store.multiparts.all, bucket)
        ]
        return _document("ListMultipartUploadsResult", _xml(Bucket=bucket, IsTruncated="false"), *uploads)
    return await asyncio.to_thread(_list_bucket, store, bucket, request.parameters)


async def _put(store: ObjectStore, request: StorageRequest, bucket: str, name: str) -> Answer:
    conditions = await with_entity_tags(store, bucket, name, _conditions(request), request.headers)
    expected = checksums_of({}, request.headers)
    found = await write_object(store, bucket, name, _fields(request), conditions, request.chunks(), expected)
    return _written(found)


def _written(found: StoredObject) -> Answer:
    headers = media_headers(found, xml=True)
    return Answer(200, b"", {k: v for k, v in headers.items() if k.startswith("x-goog-") or k == "etag"})


async def _upload_resumably(store: ObjectStore, request: StorageRequest, bucket: str, name: str) -> Answer:
    """Begins a resumable upload, or receives its bytes as the JSON API does, at an address that needs no signature."""
    upload_id = request.parameters.get("upload_id")
    if upload_id is None:
        begun = await asyncio.to_thread(store.uploads.start, bucket, name, _fields(request), _conditions(request))
        path = "/".join(quote(part, safe="") for part in request.segments)
        address = f"{request.origin}/{path}?upload_id={begun.id}"
        return Answer(201, b"", {"location": address, "x-guploader-uploadid": begun.id})
    answered = await resume_upload(store, request, upload_id)
    upload = await asyncio.to_thread(store.uploads.get, upload_id) if answered.status == 200 else None
    return _written(upload.finished) if upload and upload.finished else answered


async def _copy(store: ObjectStore, request: StorageRequest, bucket: str, name: str) -> Answer:
    headers = request.headers
    named = unquote_to_bytes(headers["x-goog-copy-source"].encode("latin-1"))
    try:
        of_bucket, _, of_name = named.decode().lstrip("/").partition("/")
    except UnicodeDecodeError:
        raise Invalid(f"x-goog-copy-source has to be UTF-8, not {named[:80]!r}") from None
    generation = number_of(headers, "x-goog-copy-source-generation")
    conditions = _conditions(request, "x-goog-copy-source-if-", generation=generation)
    source = SourceObject(of_bucket, of_name, conditions)
    match headers.get("x-goog-metadata-directive", "COPY"):
        case "COPY":
            fields = None
        case "REPLACE":
            fields = _fields(request)
        case other:
            raise Invalid(f"x-goog-metadata-directive is COPY or REPLACE, not {other}")
    found = await asyncio.to_thread(store.copy, source, bucket, name, fields, _conditions(request))
    fields_of_copy = _xml(LastModified=rfc3339(found.updated), ETag=_etag(xml_etag_of(found)))
    return _document("CopyObjectResult", fields_of_copy)


def _fields(request: StorageRequest) -> ObjectFields:
    headers = {name: _utf8(value) for name, value in request.headers.items()}
    meta = {name.removeprefix(_META): value for name, value in headers.items() if name.startswith(_META)}
    return ObjectFields(
        content_type=headers.get("content-type"),
        storage_class=headers.get("x-goog-storage-class"),
        metadata=meta or None,
        **{field: headers.get(header) for header, field in HEADER_FIELDS.items()},
    )


def _utf8(value: str) -> str:
    """Decodes a header's value, which was read as Latin-1, as UTF-8 if it is valid UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def _conditions(request: StorageRequest, prefix: str = "x-goog-if-", *, generation: int | None = None) -> Preconditions:
    return Preconditions(
        generation_match=number_of(request.headers, f"{prefix}generation-match"),
        metageneration_match=number_of(request.headers, f"{prefix}metageneration-match"),
        generation=generation,
    )


def _xml(**elements: str | int | list[str] | None) -> str:
    """Returns elements with text, or with the elements of a list; leaves out those that are None."""
    return "".join(
        f"<{name}>{''.join(value) if isinstance(value, list) else escape(str(value))}</{name}>"
        for name, value in elements.items()
        if value is not None
    )


def _etag(value: str) -> list[str]:
    return [f"&quot;{value}&quot;"]


def _document(root: str, *parts: str, namespace: str = _NAMESPACE) -> Answer:
    body = f"<?xml version='1.0' encoding='UTF-8'?><{root} xmlns='{namespace}'>{''.join(parts)}</{root}>"
    return Answer(200, body.encode(), {"content-type": "application/xml; charset=UTF-8"})


async def _upload_of_parts(store: ObjectStore, request: StorageRequest, bucket: str, name: str) -> Answer:
    """Answers a request for ``/BUCKET/NAME`` with ``uploads`` or ``uploadId``."""
    named = _xml(Bucket=bucket, Key=name)
    upload_id = request.parameters.get("uploadId")
    if upload_id is None:
        if request.method != "POST":
            raise NotAllowed(request)
        begun = await asyncio.to_thread(store.multiparts.start, bucket, name, _fields(request))
        return _document("InitiateMultipartUploadResult", named, _xml(UploadId=begun.id))
    upload = await asyncio.to_thread(store.multiparts.get, upload_id)
    if (upload.bucket, upload.name) != (bucket, name):
        raise NoSuchResource("The requested upload was not found.", code="NoSuchUpload")
    match request.method:
        case "PUT":
            return await _take_part(store, request, upload_id)
        case "POST":
            parts = _parts(await request.body())
            found = await asyncio.to_thread(store.multiparts.complete, upload_id, parts)
            answered = _document("CompleteMultipartUploadResult", named, _xml(ETag=_etag(xml_etag_of(found))))
            extra = {k: v for k, v in media_headers(found, xml=True).items() if k.startswith("x-goog-")}
            return dataclasses.replace(answered, headers={**answered.headers, **extra})
        case "DELETE":
            await asyncio.to_thread(store.multiparts.abort, upload_id)
            return Answer(204)
        case "GET":
            return _list_parts(upload, request, named)
    raise NotAllowed(request)


async def _take_part(store: ObjectStore, request: StorageRequest, upload_id: str) -> Answer:
    number = number_of(request.parameters, "partNumber")
    if number is None:
        raise Invalid("Required: partNumber")
    writer = await asyncio.to_thread(store.multiparts.open_part, upload_id, number)
    try:
        async for chunk in request.chunks():
            await asyncio.to_thread(writer.write, chunk)
    except BaseException:
        writer.abort()
        raise
    part = await asyncio.to_thread(writer.commit, checksums_of({}, request.headers))
    return Answer(200, b"", {"etag": f'"{part.etag}"', "x-goog-hash": hash_header(part.checksums)})


def _list_parts(upload: MultipartUpload, request: StorageRequest, named: str) -> Answer:
    after = number_of(request.parameters, "part-number-marker") or 0
    most = number_of(request.parameters, "max-parts")
    most = 1000 if most is None else min(most, 1000)
    if most < 0:
        raise Invalid(f"Invalid argument: max-parts has to be a number, not {most}")
    left = [part for part in upload.parts if part.number > after]
    page = left[:most]
    is_cut = len(left) > most
    marker = page[-1].number if page and is_cut else None
    fields = _xml(UploadId=upload.id, IsTruncated=str(is_cut).lower(), NextPartNumberMarker=marker)
    parts = [
        _xml(PartNumber=part.number, LastModified=rfc3339(part.updated), ETag=_etag(part.etag), Size=part.size)
        for part in page
    ]
    return _document("ListPartsResult", named, fields, *(_xml(Part=[part]) for part in parts))


def _parts(body: bytes) -> list[tuple[int, str]]:
    """Returns the number and ETag of each part in the request to complete an upload; raises Invalid for bad XML."""
    try:
        tree = ElementTree.fromstring(body)
        parts = [part for part in tree.iter() if part.tag.rpartition("}")[2] == "Part"]
        values = [{child.tag.rpartition("}")[2]: (child.text or "").strip() for child in part} for part in parts]
        return [(int(value["PartNumber"]), value["ETag"].strip('"')) for value in values]
    except (ElementTree.ParseError, KeyError, ValueError):
        raise Invalid("The XML you provided was not well-formed or did not validate", code="MalformedXML") from None


def _list_bucket(store: ObjectStore, bucket: str, given: Mapping[str, str]) -> Answer:
    """Returns a page of the objects of a bucket.

    The parameter ``list-type=2`` chooses the second version, whose pages continue at a ``continuation-token``; pages of
    the first version continue after a ``marker``. ``encoding-type=url`` is for names that XML cannot hold.
    """
    encoding = given.get("encoding-type", "")
    if encoding not in ("", "url"):
        raise Invalid(f"Invalid Encoding Method specified in Request: {encoding}")
    second = given.get("list-type") == "2"
    query = _query(given, second)
    page = store.list(bucket, query) if query.max_results else Listing(())  # the JSON API allows no query for 0 objects
    shown: Callable[[str], str] = functools.partial(quote, safe="/") if encoding else str
    if second:
        place = _xml(
            KeyCount=len(page.objects) + len(page.prefixes),
            StartAfter=shown(given.get("start-after", "")) or None,
            ContinuationToken=given.get("continuation-token") or None,
            NextContinuationToken=page.next_page,
        )
    else:
        names = [*(it.name for it in page.objects[-1:]), *page.prefixes[-1:]]
        following = shown(max(names, key=str.encode)) if page.next_page else None
        place = _xml(Marker=shown(given.get("marker", "")), NextMarker=following)
    owner = _xml(Owner=[_xml(ID=PRODUCT)]) if second and given.get("fetch-owner") == "true" else ""
    return _document(
        "ListBucketResult",
        _xml(Name=bucket, Prefix=shown(query.prefix), Delimiter=shown(query.delimiter) or None),
        _xml(MaxKeys=query.max_results, EncodingType=encoding or None),
        place,
        _xml(IsTruncated=str(bool(page.next_page)).lower()),
        *(_xml(Contents=[_contents(it, shown(it.name)), owner]) for it in page.objects),
        *(_xml(CommonPrefixes=[_xml(Prefix=shown(each))]) for each in page.prefixes),
        namespace=_LISTING_NAMESPACE,
    )


def _contents(it: StoredObject, key: str) -> str:
    return _xml(
        Key=key,
        Generation=it.generation,
        MetaGeneration=it.metageneration,
        LastModified=rfc3339(it.updated),
        ETag=_etag(xml_etag_of(it)),
        Size=it.size,
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
    """Returns the first name after a name, or after all names with a prefix."""
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
