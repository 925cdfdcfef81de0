"""Number formats: one table, and exact decoding and correctly rounded encoding of raw words.

``words`` are the raw bits of a tensor as an unsigned numpy array. A comparison works on words, so
NaN payloads and the sign of zero survive; nobody turns words into floats and back.
"""

from verify.formats.classify import is_nan
from verify.formats.decoding import decode
from verify.formats.encoding import encode
from verify.formats.table import FORMATS, Format, get_format, word_dtype

__all__ = ["FORMATS", "Format", "decode", "encode", "get_format", "is_nan", "word_dtype"]
