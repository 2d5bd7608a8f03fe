import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends records with the client's defaults; prints "partition offset value" for each that is acknowledged. */
public class IdempotentProduce {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], topic = args[1];
        int count = Integer.parseInt(args[2]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "enable.idempotence", "true"); // the default of 4.3, not yet of 2.8
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++)
                sent.add(producer.send(new ProducerRecord<>(topic, "key-" + i, "value-" + i)));
        }
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < count; i++) {
            RecordMetadata at = sent.get(i).get();
            out.append(at.partition()).append(' ').append(at.offset()).append(" value-").append(i).append('\n');
        }
        System.out.print(out);
    }
}
