import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Two members of a group with the client's defaults, and a rebalance in the middle: one reads alone,
 * the other joins, both read, one leaves. Prints "member value" for each record that was read.
 */
public class GroupConsume {
    static final ConcurrentLinkedQueue<String> read = new ConcurrentLinkedQueue<>();

    static class Member extends Thread {
        final KafkaConsumer<String, String> consumer;
        final String topic;
        volatile int partitions = 0;
        volatile boolean leaves = false;

        Member(String name, String bootstrap, String topic) {
            super(name);
            this.topic = topic;
            Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap, "group.id", topic, "auto.offset.reset", "earliest");
            consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        }

        @Override
        public void run() {
            try (consumer) {
                consumer.subscribe(List.of(topic));
                while (!leaves) {
                    consumer.poll(Duration.ofMillis(50)).forEach(r -> read.add(getName() + " " + r.value()));
                    partitions = consumer.assignment().size();
                }
            }
        }
    }

    static void until(String what, BooleanSupplier condition) throws Exception {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("not in time: " + what);
            Thread.sleep(10);
        }
    }

    static void send(KafkaProducer<String, String> producer, String topic, String prefix, int count) {
        for (int i = 0; i < count; i++) producer.send(new ProducerRecord<>(topic, i % 3, null, prefix + i));
        producer.flush();
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], topic = args[1];
        int count = Integer.parseInt(args[2]);
        Member one = new Member("one", bootstrap, topic), two = new Member("two", bootstrap, topic);
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.idempotence", "true");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            send(producer, topic, "before-", count);
            one.start();
            until("one has read all", () -> read.size() >= count);
            two.start();
            until("both have work", () -> one.partitions + two.partitions == 3 && one.partitions > 0 && two.partitions > 0);
            send(producer, topic, "after-", count);
            until("both have read all", () -> read.size() >= 2 * count);
            two.leaves = true;
            two.join();
            until("one has taken over", () -> one.partitions == 3);
            one.leaves = true;
            one.join();
        }
        System.out.println(String.join("\n", read));
    }
}
