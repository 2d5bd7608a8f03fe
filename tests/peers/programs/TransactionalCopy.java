import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copies a topic to another in transactions, three times: with aborts in between, with a second
 * instance that fences the first, and with a rebalance in the middle of a transaction. Arguments are
 * the broker, the number of records and the three inputs; the outputs are called like them, with
 * "-copy". Prints "name=value" for what it saw.
 */
public class TransactionalCopy {
    static String bootstrap;
    static int count;

    static void say(String name, Object value) {
        System.out.println(name + "=" + value);
    }

    static void until(String what, BooleanSupplier condition) {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (!condition.getAsBoolean())
            if (System.nanoTime() > deadline) throw new IllegalStateException("not in time: " + what);
    }

    static KafkaProducer<String, String> producer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    /** One member of the group, with a producer of its own. The group has the name of the input. */
    static class Copier implements AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final KafkaProducer<String, String> producer;
        final String source;
        int committed = 0, aborted = 0, copied = 0;

        Copier(String source, String name) {
            this.source = source;
            consumer = new KafkaConsumer<>(
                Map.of("bootstrap.servers", bootstrap, "group.id", source, "auto.offset.reset", "earliest",
                    "enable.auto.commit", "false", "isolation.level", "read_committed",
                    "max.poll.records", "20", "heartbeat.interval.ms", "200"),
                new StringDeserializer(), new StringDeserializer());
            producer = TransactionalCopy.producer(Map.of("transactional.id", source + "-" + name));
            producer.initTransactions();
            consumer.subscribe(List.of(source));
        }

        List<ConsumerRecord<String, String>> read() {
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            return records;
        }

        List<ConsumerRecord<String, String>> readSomething() {
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            until("something to read", () -> records.addAll(read()));
            return records;
        }

        void begin(List<ConsumerRecord<String, String>> records) {
            producer.beginTransaction();
            for (var record : records)
                producer.send(new ProducerRecord<>(source + "-copy", record.partition(), null, record.value()));
        }

        void sendOffsets(List<ConsumerRecord<String, String>> records, ConsumerGroupMetadata metadata) {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (var record : records)
                offsets.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            producer.sendOffsetsToTransaction(offsets, metadata);
        }

        void abort() {
            producer.abortTransaction();
            aborted++;
            rewind();
        }

        void rewind() {
            var offsets = consumer.committed(consumer.assignment());
            for (var place : consumer.assignment())
                consumer.seek(place, offsets.get(place) == null ? 0 : offsets.get(place).offset());
        }

        int copy(boolean commits) {
            var records = read();
            if (records.isEmpty()) return 0;
            begin(records);
            sendOffsets(records, consumer.groupMetadata());
            if (!commits) {
                producer.flush();
                abort();
                return 0;
            }
            producer.commitTransaction();
            committed++;
            copied += records.size();
            return records.size();
        }

        @Override
        public void close() {
            consumer.close();
            producer.close(Duration.ofSeconds(10));
        }
    }

    static void fill(String topic) {
        try (var producer = producer(Map.of())) {
            for (int i = 0; i < count; i++) producer.send(new ProducerRecord<>(topic, i % 3, null, "value-" + i));
        }
    }

    static void copyWithAborts(String source) {
        fill(source);
        try (var copier = new Copier(source, "one")) {
            until("everything is copied", () -> {
                copier.copy(false);
                copier.copy(true);
                return copier.copied >= count;
            });
            say("committed", copier.committed);
            say("aborted", copier.aborted);
        }
    }

    static void copyAndFence(String source) {
        fill(source);
        try (var first = new Copier(source, "same")) {
            var records = first.readSomething();
            first.begin(records);
            first.sendOffsets(records, first.consumer.groupMetadata());
            first.producer.flush();
            try (var second = producer(Map.of("transactional.id", source + "-same"))) {
                second.initTransactions();
                try {
                    first.producer.commitTransaction();
                    say("fenced", "committed");
                } catch (KafkaException e) {
                    say("fenced", e.getClass().getSimpleName());
                }
            }
        }
        try (var third = new Copier(source, "same")) {
            until("everything is copied", () -> {
                third.copy(true);
                return third.copied >= count;
            });
        }
    }

    static void copyAndRebalance(String source) {
        fill(source);
        try (var one = new Copier(source, "one")) {
            until("one works", () -> one.copy(true) > 0);
            var records = one.readSomething();
            one.begin(records);
            var before = one.consumer.groupMetadata();
            try (var two = new Copier(source, "two")) {
                until("both have work", () -> {
                    one.consumer.poll(Duration.ofMillis(50));
                    two.consumer.poll(Duration.ofMillis(50));
                    int a = one.consumer.assignment().size(), b = two.consumer.assignment().size();
                    return a + b == 3 && a > 0 && b > 0;
                });
                try {
                    one.sendOffsets(records, before);
                    say("rebalanced", "accepted");
                } catch (KafkaException e) {
                    say("rebalanced", e.getClass().getSimpleName());
                }
                one.abort();
                two.rewind();
                until("everything is copied", () -> {
                    one.copy(true);
                    two.copy(true);
                    return one.copied + two.copied >= count;
                });
                say("both worked", one.copied > 0 && two.copied > 0);
            }
        }
    }

    public static void main(String[] args) {
        bootstrap = args[0];
        count = Integer.parseInt(args[1]);
        copyWithAborts(args[2]);
        copyAndFence(args[3]);
        copyAndRebalance(args[4]);
    }
}
