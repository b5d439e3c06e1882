// Text as gzip and zstd compress it.
#pragma once
#include <zlib.h>
#include <zstd.h>

#include <string>

inline std::string gzip(const std::string& text) {
    std::string packed(text.size() + text.size() / 1000 + 100, 0);
    z_stream stream = {};
    deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);  // 16: gzip
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = uInt(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = uInt(packed.size());
    deflate(&stream, Z_FINISH);
    packed.resize(stream.total_out);
    deflateEnd(&stream);
    return packed;
}

inline std::string zstd(const std::string& text) {
    std::string packed(ZSTD_compressBound(text.size()), 0);
    packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
    return packed;
}
