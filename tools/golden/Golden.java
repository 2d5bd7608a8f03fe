import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.InputStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;

/**
 * Writes golden bytes: what kafka-clients' own classes make of messages that are filled by rule.
 *
 * <p>For each API, each version and each variant there is one line with the bytes in hex and the
 * content as Kafka's converter prints it after it has read those bytes back.
 *
 * <p>Usage: java -cp 'kafka-clients and jackson' Golden.java DIRECTORY Produce Fetch ...
 */
public class Golden {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
    private static final ObjectMapper MAPPER =
        new ObjectMapper().configure(JsonParser.Feature.ALLOW_COMMENTS, true);

    /** How a message is filled. */
    enum Variant {
        /** Every field set to something of its own, two elements in each array. */
        FULL,
        /** Every field at its default, null wherever the version allows it. */
        BARE,
        /** Nothing null, and every string, array and run of bytes empty. */
        EMPTY,
        /** The least or the greatest number, lengths that need two bytes as a varint. */
        EDGE
    }

    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[0]);
        Files.createDirectories(directory);
        for (int i = 1; i < arguments.length; i++) {
            List<String> lines = new ArrayList<>();
            for (String kind : List.of("Request", "Response")) {
                lines.addAll(linesOf(arguments[i], kind));
            }
            Files.writeString(
                directory.resolve(arguments[i] + ".json"),
                "[\n" + String.join(",\n", lines) + "\n]\n");
        }
    }

    private static List<String> linesOf(String api, String kind) throws Exception {
        JsonNode spec = specOf(api + kind);
        List<String> lines = new ArrayList<>();
        Range valid = Range.of(spec.get("validVersions").textValue());
        for (short version = (short) valid.first; version <= valid.last; version++) {
            for (Variant variant : Variant.values()) {
                lines.add(lineOf(api + kind, kind, spec, version, variant));
            }
        }
        return lines;
    }

    private static String lineOf(
            String name, String kind, JsonNode spec, short version, Variant variant)
            throws Exception {
        Class<?> type = Class.forName("org.apache.kafka.common.message." + name + "Data");
        Class<?> converter = Class.forName(type.getName() + "JsonConverter");
        Method read = converter.getMethod("read", JsonNode.class, short.class);
        Method write = converter.getMethod("write", type, short.class);
        ObjectNode filled = new Filler(spec, version, variant).struct(spec.get("fields"));
        Message message = (Message) read.invoke(null, filled, version);
        ByteBufferAccessor bytes = MessageUtil.toByteBufferAccessor(message, version);
        ByteBuffer buffer = bytes.buffer().duplicate();
        byte[] raw = new byte[buffer.remaining()];
        buffer.duplicate().get(raw);
        Object back = type.getConstructor(Readable.class, short.class)
            .newInstance(new ByteBufferAccessor(buffer), version);
        ObjectNode line = JSON.objectNode();
        line.put("kind", kind.toLowerCase());
        line.put("version", version);
        line.put("variant", variant.name().toLowerCase());
        line.put("bytes", HexFormat.of().formatHex(raw));
        JsonNode content = (JsonNode) write.invoke(null, back, version);
        restoreRecords(content, filled);
        line.set("content", content);
        return MAPPER.writeValueAsString(line);
    }

    /** Kafka's converter reads record batches but prints them as empty: put back what was read. */
    private static void restoreRecords(JsonNode content, JsonNode filled) {
        if (content.has("records")) {
            ((ObjectNode) content).set("records", filled.get("records"));
        }
        if (content.isObject()) {
            content.fieldNames().forEachRemaining(
                name -> restoreRecords(content.get(name), filled.get(name)));
        }
        for (int i = 0; content.isArray() && i < content.size(); i++) {
            restoreRecords(content.get(i), filled.get(i));
        }
    }

    private static JsonNode specOf(String name) throws Exception {
        try (InputStream in = Message.class.getResourceAsStream("/common/message/" + name + ".json")) {
            return MAPPER.readTree(in);
        }
    }

    /** Versions as Kafka writes them: 3-7, 9+, 4, none. */
    record Range(int first, int last) {
        static Range of(String text) {
            if (text.equals("none")) {
                return new Range(1, 0);
            }
            if (text.endsWith("+")) {
                return new Range(Integer.parseInt(text.substring(0, text.length() - 1)), Short.MAX_VALUE);
            }
            String[] ends = text.split("-");
            return new Range(Integer.parseInt(ends[0]), Integer.parseInt(ends[ends.length - 1]));
        }

        boolean has(int version) {
            return first <= version && version <= last;
        }
    }

    /** Builds the content of one message in one version. */
    static class Filler {
        private final Map<String, JsonNode> common = new HashMap<>();
        private final short version;
        private final Variant variant;
        private int count = 0;

        Filler(JsonNode spec, short version, Variant variant) {
            this.version = version;
            this.variant = variant;
            for (JsonNode struct : spec.path("commonStructs")) {
                common.put(struct.get("name").textValue(), struct.get("fields"));
            }
        }

        ObjectNode struct(JsonNode fields) {
            ObjectNode node = JSON.objectNode();
            for (JsonNode field : fields) {
                if (Range.of(field.get("versions").textValue()).has(version)) {
                    String name = field.get("name").textValue();
                    String key = name.substring(0, 1).toLowerCase() + name.substring(1);
                    node.set(key, field(field));
                }
            }
            return node;
        }

        private JsonNode field(JsonNode field) {
            String type = field.get("type").textValue();
            boolean nullable = Range.of(field.path("nullableVersions").asText("none")).has(version);
            if (nullable && variant == Variant.BARE) {
                return JSON.nullNode();
            }
            if (type.startsWith("[]")) {
                ArrayNode array = JSON.arrayNode();
                int size = variant == Variant.FULL ? 2 : variant == Variant.EDGE ? 1 : 0;
                for (int i = 0; i < size; i++) {
                    array.add(value(field, type.substring(2)));
                }
                return array;
            }
            if (variant == Variant.BARE && field.has("default")) {
                return defaultOf(type, field.get("default").asText());
            }
            return value(field, type);
        }

        private JsonNode defaultOf(String type, String text) {
            return switch (type) {
                case "bool" -> JSON.booleanNode(Boolean.parseBoolean(text));
                case "string" -> JSON.textNode(text.equals("null") ? "" : text);
                default -> JSON.numberNode(Long.decode(text));
            };
        }

        private JsonNode value(JsonNode field, String type) {
            count++;
            return switch (type) {
                case "bool" -> JSON.booleanNode(isSet());
                case "int8" -> number(count % 100 + 1, Byte.MIN_VALUE, Byte.MAX_VALUE);
                case "int16" -> number(300 + count, Short.MIN_VALUE, Short.MAX_VALUE);
                case "uint16" -> number(40_000 + count, 0, 65_535);
                case "int32" -> number(70_000 + count, Integer.MIN_VALUE, Integer.MAX_VALUE);
                case "uint32" -> number(3_000_000_000L + count, 0, 4_294_967_295L);
                case "int64" -> number((5L << 40) + count, Long.MIN_VALUE, Long.MAX_VALUE);
                case "float64" -> JSON.numberNode(isSet() ? 0.5 + count : 0.0);
                case "string" -> JSON.textNode(text());
                case "bytes" -> JSON.binaryNode(text().getBytes(StandardCharsets.UTF_8));
                case "uuid" -> JSON.textNode(
                    (isSet() ? new Uuid(0x0102030405060708L, count) : Uuid.ZERO_UUID).toString());
                case "records" -> JSON.binaryNode(records());
                default -> struct(field.has("fields") ? field.get("fields") : common.get(type));
            };
        }

        private boolean isSet() {
            return variant == Variant.FULL || variant == Variant.EDGE;
        }

        private JsonNode number(long own, long least, long greatest) {
            return switch (variant) {
                case FULL -> JSON.numberNode(own);
                case EDGE -> JSON.numberNode(count % 2 == 0 ? least : greatest);
                default -> JSON.numberNode(0L);
            };
        }

        private String text() {
            return switch (variant) {
                case FULL -> "name-\u00e9\u4e16-" + count;
                // Only now and then, to keep the files small.
                case EDGE -> count % 3 == 1 ? "x".repeat(127) : "";
                default -> "";
            };
        }

        private byte[] records() {
            if (!isSet()) {
                return new byte[0];
            }
            byte[] value = ("value-" + count).getBytes(StandardCharsets.UTF_8);
            ByteBuffer buffer = MemoryRecords.withRecords(
                Compression.NONE, new SimpleRecord(1_700_000_000_000L, value)).buffer();
            byte[] raw = new byte[buffer.remaining()];
            buffer.get(raw);
            return raw;
        }
    }
}
