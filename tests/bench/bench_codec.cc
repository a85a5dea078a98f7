/* simdjson's side of bench_codec: the same typed extraction by its on-demand interface. */
#include <simdjson.h>

extern "C" {
struct simd_row { /* of SYS */
    int64_t bt;
    const char *source;
    size_t source_len;
    double value[7];
};
/* The fields of `value`, in this order. */
extern const char *const simd_names[7];
const char *const simd_names[7] = { "longitude", "latitude", "temperature",   "humidity",
                                    "light",     "dust",     "airquality_raw" };
int simd_decode(const char *text, size_t len, size_t capacity, struct simd_row *row);
}

/* The record is followed by at least SIMDJSON_PADDING readable bytes. 0 or an error. */
int simd_decode(const char *text, size_t len, size_t capacity, struct simd_row *row) {
    using namespace simdjson;
    static ondemand::parser parser;
    ondemand::document doc;
    auto error = parser.iterate(text, len, capacity).get(doc);
    if (error)
        return error;
    ondemand::array entries;
    int64_t seen = 0;
    if ((error = doc["e"].get_array().get(entries)))
        return error;
    for (auto item : entries) {
        ondemand::object entry;
        if ((error = item.get_object().get(entry)))
            return error;
        std::string_view name, text_value;
        double number = 0;
        for (auto field : entry) {
            std::string_view key;
            if ((error = field.unescaped_key().get(key)))
                return error;
            if (key == "n")
                error = field.value().get_string().get(name);
            else if (key == "v")
                error = field.value().get_double_in_string().get(number);
            else if (key == "sv")
                error = field.value().get_string().get(text_value);
            if (error)
                return error;
        }
        if (name == "source") {
            row->source = text_value.data();
            row->source_len = text_value.size();
            seen |= 128;
            continue;
        }
        for (int i = 0; i < 7; i++)
            if (name == simd_names[i]) {
                row->value[i] = number;
                seen |= 1 << i;
                break;
            }
    }
    if ((error = doc["bt"].get_int64().get(row->bt)))
        return error;
    return seen == 255 ? 0 : -1;
}
