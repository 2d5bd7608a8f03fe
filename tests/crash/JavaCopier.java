import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The copier of copier.py with the Java client, which speaks the second generation of transactions.
 * Arguments: transactional id, broker, port of the recorder, seed, partitions of the target.
 */
public class JavaCopier {
    static final String SOURCE = "in", TARGET = "out", GROUP = "copiers";

    static String tid, bootstrap;
    static int run, targetPartitions;
    static Recorder recorder;
    static KafkaProducer<byte[], byte[]> producer;
    static KafkaConsumer<byte[], byte[]> consumer;
    static int process, transactions = 0;

    /** Asks for each line of the history, and waits for it. */
    static class Recorder {
        final Socket socket;
        final BufferedReader answers;
        boolean isOver = false;

        Recorder(int port) throws Exception {
            socket = new Socket("127.0.0.1", port);
            socket.setTcpNoDelay(true);
            answers = new BufferedReader(new InputStreamReader(socket.getInputStream()));
        }

        int ask(String what, String fields) throws Exception {
            String line = "{\"do\":\"" + what + "\"" + (fields.isEmpty() ? "" : "," + fields) + "}\n";
            socket.getOutputStream().write(line.getBytes(StandardCharsets.UTF_8));
            String[] answer = answers.readLine().split(" ");
            isOver = answer[1].equals("1");
            return Integer.parseInt(answer[0]);
        }
    }

    static void log(Object... words) {
        System.err.println(tid + " " + List.of(words));
    }

    /** A producer with an identity, sooner or later; then back to what is committed. */
    static void open() throws Exception {
        while (true) {
            int call = recorder.ask("call", "\"p\":" + process + ",\"op\":\"open\",\"tid\":\"" + tid + "\"");
            String outcome = "unknown";
            try {
                if (producer != null) producer.close(Duration.ZERO);
                producer = new KafkaProducer<>(
                    Map.of("bootstrap.servers", bootstrap, "transactional.id", tid, "linger.ms", "0",
                        "transaction.timeout.ms", "10000", "max.block.ms", "30000", "retry.backoff.ms", "20",
                        "reconnect.backoff.ms", "20", "reconnect.backoff.max.ms", "100"),
                    new ByteArraySerializer(), new ByteArraySerializer());
                producer.initTransactions();
                outcome = "ok";
                rewind();
                recorder.ask(outcome, "\"call\":" + call);
                return;
            } catch (Exception e) {
                log("cannot be opened", e);
                recorder.ask(outcome, "\"call\":" + call);
                process = recorder.ask("process", "");
                if (recorder.isOver) throw e;
            }
        }
    }

    static void rewind() {
        var places = consumer.assignment();
        if (places.isEmpty()) return;
        var offsets = consumer.committed(places, Duration.ofSeconds(30));
        for (var place : places) consumer.seek(place, offsets.get(place) == null ? 0 : offsets.get(place).offset());
    }

    /** As oncelog.check.payload has it. */
    static byte[] payload(int index, int value) {
        ByteBuffer fields = ByteBuffer.allocate(28);
        fields.putLong(run).putInt(process).putInt(transactions).putInt(index).putLong(value);
        CRC32 crc = new CRC32();
        crc.update(fields.array());
        return ByteBuffer.allocate(32).putInt((int) crc.getValue()).put(fields.array()).array();
    }

    static String steps(int[] parts, int[] values, String[] offsets) {
        return "\"steps\":" + IntStream.range(0, parts.length)
            .mapToObj(i -> "[\"w\",\"" + TARGET + ":" + parts[i] + "\"," + values[i]
                + (offsets == null ? "" : "," + offsets[i]) + "]")
            .collect(Collectors.joining(",", "[", "]"));
    }

    static void copy(List<ConsumerRecord<byte[], byte[]>> records, boolean commits) throws Exception {
        int count = records.size();
        int[] parts = new int[count], values = new int[count];
        String[] offsets = new String[count];
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        Map<String, long[]> ranges = new TreeMap<>();
        for (int i = 0; i < count; i++) {
            var record = records.get(i);
            parts[i] = record.partition() % targetPartitions;
            values[i] = recorder.ask("value", "");
            offsets[i] = "null";
            ends.put(new TopicPartition(SOURCE, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            ranges.computeIfAbsent(SOURCE + ":" + record.partition(), k -> new long[] {record.offset(), 0})[1] =
                record.offset() + 1;
        }
        int call = recorder.ask("call", "\"p\":" + process + ",\"op\":\"txn\",\"tid\":\"" + tid + "\"," + steps(parts, values, null));
        transactions++;
        String end = "";
        Exception failure = null;
        try {
            producer.beginTransaction();
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                var record = records.get(i);
                long input = ByteBuffer.wrap(record.value()).getLong(24);
                byte[] key = (record.partition() + " " + input).getBytes(StandardCharsets.UTF_8);
                sent.add(producer.send(new ProducerRecord<>(TARGET, parts[i], key, payload(i, values[i]))));
            }
            producer.flush();
            for (int i = 0; i < count; i++) offsets[i] = "" + sent.get(i).get().offset();
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            String group = ranges.entrySet().stream()
                .map(e -> "\"" + e.getKey() + "\":[" + e.getValue()[0] + "," + e.getValue()[1] + "]")
                .collect(Collectors.joining(","));
            end = ",\"end\":\"" + (commits ? "commit" : "abort") + "\",\"tc\":" + System.nanoTime()
                + (commits ? ",\"group\":[\"" + GROUP + "\",null,{" + group + "}]" : "");
            if (!commits) producer.abortTransaction();
            else commit();
        } catch (Exception e) {
            failure = e;
            log("transaction " + transactions, e);
        }
        String fields = "\"call\":" + call + end + "," + steps(parts, values, offsets);
        if (failure == null) {
            recorder.ask(commits ? "ok" : "fail", fields);
            if (!commits) goBack();
            return;
        }
        fields += ",\"err\":\"" + failure.getClass().getSimpleName() + "\"";
        if (commits && !end.isEmpty()) {
            recorder.ask("unknown", fields);
            process = recorder.ask("process", "");
            open();
            return;
        }
        recorder.ask("fail", fields);
        try {
            producer.abortTransaction();
        } catch (Exception e) {
            log("cannot abort", e);
            process = recorder.ask("process", "");
            open();
            return;
        }
        goBack();
    }

    /** What has timed out may be asked for again: it goes on. */
    static void commit() {
        for (int i = 0; ; i++) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException e) {
                if (i == 3) throw e;
            }
        }
    }

    static void goBack() throws Exception {
        try {
            rewind();
        } catch (Exception e) {
            log("cannot go back", e);
            process = recorder.ask("process", "");
            open();
        }
    }

    public static void main(String[] args) throws Exception {
        tid = args[0];
        bootstrap = args[1];
        recorder = new Recorder(Integer.parseInt(args[2]));
        run = Integer.parseInt(args[3]);
        targetPartitions = Integer.parseInt(args[4]);
        process = recorder.ask("process", "");
        Random random = new Random(run);
        Map<String, Object> settings = new HashMap<>(
            Map.of("bootstrap.servers", bootstrap, "group.id", GROUP, "auto.offset.reset", "earliest",
                "enable.auto.commit", "false", "isolation.level", "read_committed", "max.poll.records", "8",
                "session.timeout.ms", "30000", "heartbeat.interval.ms", "300"));
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "100");
        // The one strategy that all clients of the run know.
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RoundRobinAssignor");
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(SOURCE));
        open();
        while (!recorder.isOver) {
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            if (!records.isEmpty()) copy(records, random.nextDouble() > 0.15);
            recorder.ask(records.isEmpty() ? "waiting" : "working", "\"tid\":\"" + tid + "\"");
        }
        consumer.close();
        producer.close(Duration.ofSeconds(10));
    }
}
