import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.StringSerializer;

/** One call after the other, as an operator would make them; prints "name=what it said" for each. */
public class AdminCalls {
    static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(20, TimeUnit.SECONDS);
    }

    static void say(String name, Object value) {
        System.out.println(name + "=" + value);
    }

    /** The method has one name up to 3.x and another one since: what 2.8 calls all(), 4.3 calls allTopicNames(). */
    @SuppressWarnings("unchecked")
    static TopicDescription describe(Admin admin, String topic) throws Exception {
        Object result = admin.describeTopics(List.of(topic));
        Object future;
        try {
            future = result.getClass().getMethod("allTopicNames").invoke(result);
        } catch (NoSuchMethodException e) {
            future = result.getClass().getMethod("all").invoke(result);
        }
        return get((KafkaFuture<Map<String, TopicDescription>>) future).get(topic);
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], topic = args[1], group = topic + "-group";
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            say("nodes", get(admin.describeCluster().nodes()).size());
            say("controller", get(admin.describeCluster().controller()).idString());

            NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "3600000"));
            get(admin.createTopics(List.of(wanted)).all());
            say("listed", get(admin.listTopics().names()).contains(topic));
            say("partitions", describe(admin, topic).partitions().size());
            say("leader", describe(admin, topic).partitions().get(1).leader().idString());
            try {
                get(admin.createTopics(List.of(wanted)).all());
                say("again", "created");
            } catch (java.util.concurrent.ExecutionException e) {
                say("again", e.getCause() instanceof TopicExistsException ? "exists" : e.getCause());
            }
            get(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all());
            say("more partitions", describe(admin, topic).partitions().size());

            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            ConfigEntry retention = get(admin.describeConfigs(List.of(resource)).all()).get(resource).get("retention.ms");
            say("retention", retention.value() + " " + retention.source());
            AlterConfigOp change = new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.SET);
            get(admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
            ConfigEntry policy = get(admin.describeConfigs(List.of(resource)).all()).get(resource).get("cleanup.policy");
            say("policy", policy.value() + " " + policy.source());
            AlterConfigOp undo = new AlterConfigOp(new ConfigEntry("cleanup.policy", ""), AlterConfigOp.OpType.DELETE);
            get(admin.incrementalAlterConfigs(Map.of(resource, List.of(undo))).all());

            // 2.8 asks for acks=1 by default, and is then answered before the records may be seen.
            Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "acks", "all");
            try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                for (int i = 0; i < 10; i++) producer.send(new ProducerRecord<>(topic, 0, null, "value-" + i));
            }
            say("latest", get(admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition)).offset());
            say("deleted to", get(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4)))
                .lowWatermarks().get(partition)).lowWatermark());
            say("earliest", get(admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition)).offset());
            say("log dirs", get(admin.describeLogDirs(List.of(Integer.valueOf(
                get(admin.describeCluster().controller()).id()))).allDescriptions()).size());

            get(admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(7, "note"))).all());
            OffsetAndMetadata committed = get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(partition);
            say("committed", committed.offset() + " " + committed.metadata());
            Set<String> groups = new TreeSet<>();
            for (ConsumerGroupListing each : get(admin.listConsumerGroups().all())) groups.add(each.groupId());
            say("group listed", groups.contains(group));
            say("group state", get(admin.describeConsumerGroups(List.of(group)).all()).get(group).state());
            get(admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all());
            get(admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(8))).all());
            get(admin.deleteConsumerGroups(List.of(group)).all());
            groups.clear();
            for (ConsumerGroupListing each : get(admin.listConsumerGroups().all())) groups.add(each.groupId());
            say("group deleted", !groups.contains(group));

            get(admin.deleteTopics(List.of(topic)).all());
            say("topic deleted", !get(admin.listTopics().names()).contains(topic));
        }
    }
}
